// The steps of a seed as moments: all nodes, their logs and the faults in force after each step, and the journeys of messages.
// Pure. A moment is never changed: a step makes a new one that shares all nodes but its own. So to go back is to look at a lower number.
const CALM = { down: [], paused: [], cut: [], held: [], disks: {} };
const FRESH = { yes: [], no: [], reached: {} };
const INTERESTING = new Set(["state", "commit", "truncate", "install", "strike", "note", "gone", "verdict"]);

export const isOfInterest = (step) => INTERESTING.has(step.event) && step.text !== "boot";

function withLog(node, step) {
  const boxes = (from) => (step.batches ?? []).map(([epoch, end, crc, voters]) => { const made = { from, end, epoch, crc, voters }; from = end; return made; });
  switch (step.event) {
    case "boot": return { ...node, ...FRESH, heard: {}, start: step.start, log: boxes(step.start) };
    case "append": return { ...node, log: [...node.log, ...boxes(step.offset)] };
    case "truncate": return { ...node, log: node.log.filter((each) => each.end <= step.offset) };
    case "install": return { ...node, start: step.offset, log: [] };
    case "clean": return { ...node, start: step.offset, log: node.log.filter((each) => each.end > step.offset) };
    default: return node;
  }
}

// What a node has learned from a message: whom it has heard, votes it has, and how far a leader knows each follower to be.
function withNews(node, step, sent, at) {
  const heard = { ...node.heard, [step.peer]: at }, { m = {}, message } = sent;
  if (step.event === "receive" && m.type === "Fetch" && node.state === "leader" && m.epoch === node.epoch) {
    const agrees = m.offset <= node.start || node.log.some((each) => each.end === m.offset && each.epoch === m.lastEpoch);
    return { ...node, heard, reached: agrees ? { ...node.reached, [step.peer]: { offset: m.offset, at } } : node.reached };
  }
  const counts = step.event === "answer" && step.awaited && message === "VoteResponse" && (node.state === "candidate" || node.state === "prospective");
  if (!counts || node.yes.includes(step.peer)) return { ...node, heard };
  return m.type === "VoteReply" ? { ...node, heard, yes: [...node.yes, step.peer] } : { ...node, heard, no: [...new Set([...node.no, step.peer])] };
}

function after(node, step, sent, at) {
  const changed = { ...node, ...step.changed };
  if (step.event === "receive" || step.event === "answer") return withNews(changed, step, sent, at);
  if (step.event !== "state") return withLog(changed, step);
  return { ...changed, yes: changed.state === "candidate" || changed.state === "prospective" ? [changed.id] : [], no: [], reached: {} };
}

export function fold(seed) {
  const size = seed.options.voters + seed.options.observers, moments = [], flights = [], bySend = new Map();
  let weather = CALM, truth = { leader: -1, epoch: 0 };
  let nodes = Array.from({ length: size }, (_, id) => ({ id, state: "unattached", epoch: 0, leader: -1, voted: -1, end: 0, hw: -1, durable: 0, config: [], log: [], start: 0, heard: {}, ...FRESH }));
  seed.steps.forEach((step, at) => {
    if (step.weather) weather = { ...CALM, ...step.weather };
    const sent = step.sent_in === undefined ? step : seed.steps[step.sent_in], mine = nodes[step.node];
    if (mine && step.event !== "note" && step.event !== "strike") {
      nodes = nodes.slice();
      nodes[step.node] = after(mine, step, sent, at);
      if (nodes[step.node].state === "leader" && nodes[step.node].epoch > truth.epoch) truth = { leader: step.node, epoch: nodes[step.node].epoch };
    }
    if (step.event === "send" || step.event === "reply") {
      const flight = { at, from: step.node, to: step.peer, step, arrivals: [], isCut: weather.cut.some(([a, b]) => a === step.node && b === step.peer) };
      flights.push(flight);
      bySend.set(at, flight);
    } else if (step.sent_in !== undefined) {
      const flight = bySend.get(step.sent_in);
      flight.arrivals.push(at);
      flight.to = step.node;
    }
    moments.push({ nodes, weather, truth });
  });
  // A message may wait for its sender's disk before it leaves.
  const patience = 2 * (seed.options.network.delay_us ?? 500) + 1000, late = 4 * patience + 3 * seed.options.disk_latency_us, end = seed.steps.at(-1).time_us;
  for (const each of flights) {
    const took = (each.arrivals.length ? seed.steps[each.arrivals[0]].time_us : end) - each.step.time_us;
    each.fate = each.arrivals.length ? (took > late ? "late" : "arrived") : took < late && !each.isCut ? "open" : "lost";
  }
  return { seed, steps: seed.steps, moments, flights, bySend, patience, ...chronicle(seed.steps, moments) };
}

// Who led when, as far as an onlooker could know, and the steps worth a mark.
function chronicle(steps, moments) {
  const reigns = [], marks = [];
  steps.forEach((step, at) => {
    const { truth, nodes, weather } = moments[at], leads = truth.leader >= 0 && nodes[truth.leader].state === "leader" && !weather.down.includes(truth.leader), leader = leads ? truth.leader : -1, now = reigns.at(-1);
    if (now && now.leader === leader && now.epoch === truth.epoch) now.to = at + 1;
    else reigns.push({ from: at, to: at + 1, leader, epoch: truth.epoch });
    if (step.event === "state" && step.changed?.state === "leader") marks.push({ step: at, kind: "election", glyph: "★" });
    else if (step.event === "truncate") marks.push({ step: at, kind: "cut", glyph: "✂" });
    else if (step.event === "strike") marks.push({ step: at, kind: "strike", words: step.fault });
    else if (step.event === "verdict" && step.text) marks.push({ step: at, kind: "violation", glyph: "✕" });
  });
  return { reigns, marks };
}

// Messages that have left by step `at` and have not arrived as often as they will: `part` of the way is behind them. A lost one stays a while.
export function pending(run, at) {
  const now = run.steps[at].time_us, found = [];
  for (const flight of run.flights) {
    if (flight.at > at) break;
    if (flight.to < 0 || flight.to === flight.from) continue;
    const began = flight.step.time_us, part = Math.min(1, (now - began) / run.patience);
    if (!flight.arrivals.length && (flight.fate === "open" || part < 1)) found.push({ flight, number: 0, part: flight.fate === "lost" ? 0.15 + 0.35 * part : 0.8 * part });
    flight.arrivals.forEach((arrival, number) => { if (arrival > at) found.push({ flight, number, part: (now - began) / Math.max(1, run.steps[arrival].time_us - began) }); });
  }
  return found;
}

// How the message of a flight fares, in words.
export function journey(run, { arrivals, fate, isCut, step }) {
  if (fate === "open") return "has not arrived when the run ends";
  if (fate === "lost") return isCut ? "never arrives: the link is cut" : "never arrives: lost, or its receiver is down";
  const [first, ...more] = arrivals.map((each) => `${((run.steps[each].time_us - step.time_us) / 1000).toFixed(1)} ms`);
  return `${fate === "late" ? "held up, " : ""}arrives after ${first}${more.length ? `, and again after ${more.join(" and ")}` : ""}`;
}
