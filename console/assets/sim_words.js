// The steps of a seed in plain English, with the terms of the KIPs.
import { plural } from "./dom.js";

export const LOOKS = {
  leader: ["★", "leads"], follower: ["●", "follows"], candidate: ["▲", "asks for votes"], prospective: ["◇", "asks for pre-votes"],
  unattached: ["○", "knows no leader"], resigned: ["▽", "has resigned"], down: ["✕", "is down"],
};
export const lookOf = (node, weather) => (weather.down.includes(node.id) ? "down" : node.state);
export const hue = (epoch) => `var(--c${epoch % 8})`;
export const nameOf = (run, id, at) => (id === undefined || id < 0 ? "any node" : `${run.moments[at].nodes[id]?.config.includes(id) ? "controller" : "observer"} ${id}`);
const batches = (all) => plural(all.length, "batch", "batches");

// The faults in force as words.
export function weatherOf({ down, paused, cut, held }) {
  const isBoth = (links, [a, b]) => links.some(([c, d]) => c === b && d === a);
  const pairs = (links) => links.filter((way) => way[0] < way[1] || (way[0] > way[1] && !isBoth(links, way))).map((way) => way.join(isBoth(links, way) ? "↔" : "→")).join(" ");
  return [["Down", down.join(" ")], ["Standing still", paused.join(" ")], ["Links cut", pairs(cut)], ["Messages held", pairs(held)]].filter(([, words]) => words).map((each) => each.join(": ")).join(" · ");
}

// Reasons of a change of state, with # for a number; $ is the node with that number.
const REASONS = {
  "fetch timeout": "its fetch timeout ran out: it has not heard from its leader", "election timeout": "its election timeout ran out", boot: "it has just started",
  "majority of pre-votes": "a majority would vote for it", "majority of votes": "a majority has voted for it", "refused by a majority": "a majority has refused",
  "n# asks for a vote": "$ asks for a vote in that epoch", "n# fetches in a higher epoch": "$ fetches in that epoch", "node # knows a higher epoch": "$ knows that epoch",
  "node # names the leader": "$ has named it", BeginQuorumEpoch: "the leader has announced itself", EndQuorumEpoch: "the leader that resigns has named it",
  "knows the leader": "its disk names the leader", "the leader's process is gone": "its leader does not answer any more", "led epoch # before": "it led the epoch before",
  "led this epoch before": "it led this epoch before it stopped, and must not lead it again", "makes way for node #": "it makes way for $", "asked to": "it was asked to",
};
const ERRORS = {
  NOT_LEADER_OR_FOLLOWER: ["not leader", "I do not lead"], FENCED_LEADER_EPOCH: ["old epoch", "your epoch is over"], UNKNOWN_LEADER_EPOCH: ["no", "I do not know your epoch yet"],
  INVALID_VOTER_KEY: ["no", "that is not my disk"], BROKER_NOT_AVAILABLE: ["no", "I am about to end"], SNAPSHOT_NOT_FOUND: ["no", "I do not have that snapshot"],
};
const FETCH = "Fetch, KIP-595: followers pull, and the offset says how much they have on disk";
const OUTCOMES = {
  records: ({ data, hw }) => [data.length ? batches(data) : "nothing new", `${data.length ? batches(data) : "no new records"} and the high watermark ${hw < 0 ? "(unknown)" : hw}`],
  diverging: ({ data: [epoch, end] }) => ["diverges", `the news that the logs diverge: epoch ${epoch} ends at ${end}`],
  snapshot: () => ["see snapshot", "the news that it needs a snapshot"],
};
// By message: its look, its term, and a function that returns it in short and as a noun.
const MESSAGES = {
  VoteRequest: ["vote", "Vote, KIP-595", (m) => [`${m.isPreVote ? "pre-vote" : "vote"} e${m.epoch}?`, `a request for a ${m.isPreVote ? `pre-vote for the epoch after ${m.epoch}` : `vote in epoch ${m.epoch}`}, with a log that ends at ${m.end} in epoch ${m.lastEpoch}`]],
  VoteResponse: ["vote", "Vote, KIP-595", (m) => (m.type === "VoteReply" ? ["yes", m.isPreVote ? "a pre-vote" : "a vote"] : ["no", "a refusal to vote"])],
  FetchRequest: ["fetch", FETCH, (m) => [`fetch ${m.offset}`, `a fetch from offset ${m.offset}`]],
  FetchResponse: ["fetch", FETCH, (m, who) => OUTCOMES[m.outcome]?.(m) ?? [`leader ${m.leader}`, `the news that ${who(m.leader)} leads epoch ${m.epoch}`]],
  BeginQuorumEpochRequest: ["begin", "BeginQuorumEpoch, KIP-595", (m) => [`begin e${m.epoch}`, `the news that it leads epoch ${m.epoch}`]],
  BeginQuorumEpochResponse: ["begin", "BeginQuorumEpoch, KIP-595", () => ["ok", "the answer that it has heard"]],
  EndQuorumEpochRequest: ["begin", "EndQuorumEpoch, KIP-595", (m) => [`end e${m.epoch}`, `the news that it stops leading epoch ${m.epoch}`]],
  EndQuorumEpochResponse: ["begin", "EndQuorumEpoch, KIP-595", () => ["ok", "the answer that it has heard"]],
  FetchSnapshotRequest: ["piece", "FetchSnapshot, KIP-630", () => ["snapshot?", "a request for a piece of a snapshot"]],
  FetchSnapshotResponse: ["piece", "FetchSnapshot, KIP-630", () => ["piece", "a piece of a snapshot"]],
};
export const kindOf = ({ message }) => MESSAGES[message]?.[0] ?? "rest";
function wordsOf({ message, m = {}, text }, who) {
  const error = Object.keys(ERRORS).find((each) => text.includes(each));
  if (error) return [ERRORS[error][0], `the answer “${ERRORS[error][1]}”${m.leader >= 0 ? ` (${who(m.leader)} leads epoch ${m.epoch})` : ""}`];
  return MESSAGES[message]?.[2](m, who) ?? [message.endsWith("Response") ? "answer" : message.replace("Request", ""), text];
}
export const short = (step) => wordsOf(step, String)[0];

const STATES = {
  prospective: (me, { epoch }) => `${me} asks whether it would get votes in an epoch after ${epoch}`,
  candidate: (me, { epoch }) => `${me} starts an election in epoch ${epoch} and votes for itself`,
  leader: (me, { epoch }) => `${me} leads epoch ${epoch}`,
  follower: (me, { epoch, leader }, who) => `${me} follows ${who(leader)} in epoch ${epoch}`,
  unattached: (me, { epoch }) => `${me} knows of epoch ${epoch} but of no leader`,
  resigned: (me, { epoch }) => `${me} leads epoch ${epoch} no longer`,
};
const TERMS = {
  append: "the log, KIP-595", truncate: "DivergingEpoch in a Fetch response, KIP-595", commit: "high watermark, KIP-595", install: "FetchSnapshot, KIP-630", clean: "snapshots, KIP-630",
  store: "quorum-state file, KIP-595", stored: "quorum-state file, KIP-595", durable: "fsync: only what is on disk counts", gone: "fetch timeout, KIP-595", boot: "recovery", strike: "fault of the simulator",
  ask: "read index, Raft §6.4", ready: "read index, Raft §6.4", prospective: "Prospective: pre-vote, KIP-996", candidate: "Candidate, KIP-595", leader: "Leader, KIP-595", follower: "Follower, KIP-595", unattached: "Unattached, KIP-595", resigned: "Resigned, KIP-595",
};
// By event, the sentence. `words` is the step's own text with names of nodes, `was` the state before.
const EVENTS = {
  boot: ({ me, words }) => `${me} starts: ${words.replace(/^.*? starts: /, "").replace(/e(\d+) L(\S+) V([^,\s]+)/, "epoch $1, leader $2, vote $3").replaceAll(/(leader|vote) -/g, "no $1")}`,
  state({ me, node, step, who, words, was }) {
    if (/^votes for/.test(step.text)) return `${me} votes for ${who(node.voted)} in epoch ${node.epoch}: the first to ask, with a log that is good enough`;
    const hasFailed = step.text === "election timeout" && (was === "prospective" || was === "candidate"), reason = REASONS[step.text.replace(/\d+/, "#")]?.replace("$", who(Number(/\d+/.exec(step.text)?.[0])));
    return `${STATES[node.state](me, node, who)}, because ${hasFailed ? `too few have granted it a ${was === "candidate" ? "vote" : "pre-vote"} before its election timeout ran out` : reason ?? words}`;
  },
  gone: ({ me }) => `${me} learns that its leader is gone`,
  append: ({ me, node, step }) => `${me}${node.state === "leader" ? ", the leader, appends" : " copies"} ${batches(step.batches)} ${node.state === "leader" ? "at" : "of its leader to"} offset ${step.offset}`,
  truncate: ({ me, step }) => `${me} cuts its log at offset ${step.offset}, because its leader has other records there`,
  install: ({ me, step }) => `${me} replaces its log by a snapshot that ends at ${step.offset}`,
  clean: ({ me, step }) => `${me} removes what its snapshot replaces: its log begins at ${step.offset} now`,
  commit: ({ me, node }) => (node.state === "leader" ? `Records before ${node.hw} are committed: a majority has them on disk, and ${me} raises its high watermark` : `${me} knows that records before ${node.hw} are committed`),
  store: ({ me, then, who }) => `${me} writes epoch ${then.epoch} and ${then.voted < 0 ? "no vote" : `its vote for ${who(then.voted)}`} to its disk; what it promises waits for that`,
  stored: ({ me }) => `The epoch and the vote of ${me} are on its disk, so what it has promised may leave`,
  durable: ({ me, node }) => `The log of ${me} is on its disk up to ${node.durable}`,
  send: ({ me, step, who }) => `${me} sends ${who(step.peer)} ${wordsOf(step, who)[1]}`,
  reply: ({ me, step, who }) => `${me} answers ${who(step.peer)}: ${wordsOf(step, who)[1].replace(/^the answer (that )?/, "")}`,
  receive: ({ me, step, sent, who, words, isAgain }) => (sent === step ? `An operator asks ${me}: ${words}` : `${me} hears from ${who(step.peer)}${isAgain ? " once more" : ""}: ${wordsOf(sent, who)[1]}${step.awaited === false ? ", for which it does not wait any more" : ""}`),
  answer: (of) => EVENTS.receive(of),
  ask: ({ me }) => `A client wants to read what is committed from ${me}, which must make sure first that it still leads`,
  ready: ({ me, step }) => `${me} still leads, so the read may be answered from offset ${step.offset}`,
  strike: ({ step, words, who, run }) => `Fault ${step.fault}${step.hit ? ` strikes ${step.hit.map(who).join(", ")}` : " finds nothing to strike"}. ${run.seed.faults[step.fault]}${words ? `; ${words}` : ""}`,
  note: ({ words }) => words,
  verdict: ({ words, run }) => (words ? `Rule broken: ${words}. The rule says: ${run.seed.rule || "the code refuses to go on"}` : "The run ends, and all rules held"),
};

// The sentence of step `at`, and its term.
export function say(run, at) {
  const step = run.steps[at], next = run.steps[at + 1], nodes = run.moments[at].nodes, node = nodes[step.node], who = (id) => nameOf(run, id, at), sent = step.sent_in === undefined ? step : run.steps[step.sent_in];
  const words = (step.text ?? "").replaceAll(/\bn(\d+)\b/g, (_, id) => who(Number(id))).replace(/cut [\d> ]+ for/, "their links are cut for").replace(": fault", "");
  const then = next?.event === "state" && next.node === step.node ? run.moments[at + 1].nodes[step.node] : node, isAgain = sent !== step && run.bySend.get(step.sent_in).arrivals.indexOf(at) > 0;
  const told = EVENTS[step.event]({ run, step, sent, node, then, who, words, isAgain, me: who(step.node), was: run.moments[at - 1]?.nodes[step.node]?.state });
  const term = sent.message ? (sent.m?.isPreVote ? "pre-vote, KIP-996" : MESSAGES[sent.message]?.[1] ?? "changes of the voters, KIP-853") : TERMS[step.event === "state" ? node.state : step.event] ?? "";
  return { sentence: `${told.charAt(0).toUpperCase()}${told.slice(1).replace(/\.$/, "")}.`, term };
}
