// The steps of a seed in plain English, with the term that the KIPs use.
export const LOOKS = {
  leader: ["★", "leads"], follower: ["●", "follows"], candidate: ["▲", "asks for votes"], prospective: ["◇", "asks for pre-votes"],
  unattached: ["○", "knows no leader"], resigned: ["▽", "has resigned"], down: ["✕", "is down"],
};
export const lookOf = (node, weather) => (weather.down.includes(node.id) ? "down" : node.state);
export const hue = (epoch) => `var(--c${epoch % 8})`;
export const nameOf = (run, id, at = run.moments.length - 1) => (id < 0 || id === undefined ? "any node" : `${run.moments[at].nodes[id]?.config.includes(id) ? "controller" : "observer"} ${id}`);

// The look of a message: votes, fetches, announcements of leaders, snapshots, or anything else.
export const kindOf = ({ message }) => (message.startsWith("Vote") && !message.startsWith("VoterChange") ? "vote" : message.startsWith("FetchSnapshot") ? "piece" : message.startsWith("Fetch") ? "fetch" : /^(Begin|End)/.test(message) ? "begin" : "rest");
// The faults in force as words.
export function weatherOf({ down, paused, cut, held }) {
  const pairs = (links) => links.filter(([a, b]) => a !== b && !(a > b && links.some(([c, d]) => c === b && d === a))).map(([a, b]) => `${a}${links.some(([c, d]) => c === b && d === a) ? "↔" : "→"}${b}`).join(" ");
  return [["Down", down.join(" ")], ["Standing still", paused.join(" ")], ["Links cut", pairs(cut)], ["Messages held", pairs(held)]].filter(([, words]) => words).map(([name, words]) => `${name}: ${words}`).join(" · ");
}

const REASONS = [
  [/^fetch timeout/, "its fetch timeout ran out: it has not heard from its leader"], [/^election timeout/, "its election timeout ran out"],
  [/^majority of pre-votes/, "a majority would vote for it"], [/^majority of votes/, "a majority has voted for it"],
  [/^refused by a majority/, "a majority has refused"], [/^n(\d+) asks for a vote/, "$ asks for a vote in that epoch"],
  [/^n(\d+) fetches in a higher epoch/, "$ fetches in that higher epoch"], [/^node (\d+) names the leader/, "$ has named it"],
  [/^node (\d+) knows a higher epoch/, "$ knows that higher epoch"], [/^BeginQuorumEpoch/, "the leader has announced itself"],
  [/^EndQuorumEpoch/, "the leader that resigns has named it"], [/^the leader's process is gone/, "its leader does not answer any more"],
  [/^boot/, "it has just started"], [/^led this epoch before/, "it led this epoch before it stopped, and must not lead it again"],
  [/^led epoch (\d+) before/, "it led the epoch before"], [/^knows the leader/, "its disk names the leader"],
  [/^makes way for node (\d+)/, "it makes way for $"], [/^asked to/, "it was asked to"],
];
const ERRORS = {
  NOT_LEADER_OR_FOLLOWER: "I do not lead", FENCED_LEADER_EPOCH: "your epoch is over", UNKNOWN_LEADER_EPOCH: "I do not know your epoch yet",
  INVALID_VOTER_KEY: "that is not my disk", BROKER_NOT_AVAILABLE: "I am about to end", SNAPSHOT_NOT_FOUND: "I do not have that snapshot",
};
const TERMS = {
  VoteRequest: "Vote, KIP-595", BeginQuorumEpochRequest: "BeginQuorumEpoch, KIP-595", EndQuorumEpochRequest: "EndQuorumEpoch, KIP-595",
  FetchRequest: "Fetch, KIP-595: followers pull, and the offset says how much they have on their disk", FetchSnapshotRequest: "FetchSnapshot, KIP-630",
  AddVoterRequest: "AddRaftVoter, KIP-853", RemoveVoterRequest: "RemoveRaftVoter, KIP-853", UpdateVoterRequest: "UpdateRaftVoter, KIP-853", ProbeVoterRequest: "KIP-853",
};
const EVENT_TERMS = {
  append: "the log, KIP-595", truncate: "DivergingEpoch in a Fetch response, KIP-595", commit: "high watermark, KIP-595", install: "FetchSnapshot, KIP-630",
  clean: "snapshots, KIP-630", store: "quorum-state file, KIP-595", stored: "quorum-state file, KIP-595", durable: "fsync: only what is on the disk counts", gone: "fetch timeout, KIP-595",
  ask: "read index, Raft §6.4", ready: "read index, Raft §6.4", boot: "recovery", strike: "fault of the simulator",
};
const STATE_TERMS = { prospective: "Prospective, pre-vote, KIP-996", candidate: "Candidate, KIP-595", leader: "Leader, KIP-595", follower: "Follower, KIP-595", unattached: "Unattached, KIP-595", resigned: "Resigned, KIP-595" };
const plural = (number, word) => `${number} ${word}${number === 1 ? "" : word.endsWith("ch") ? "es" : "s"}`;
const errorOf = (step) => Object.keys(ERRORS).find((each) => step.text.includes(each));

// A word or two for a message, for a drawing.
export function short({ message, m = {}, text }) {
  const error = errorOf({ text });
  if (error) return error === "NOT_LEADER_OR_FOLLOWER" ? "not leader" : error === "FENCED_LEADER_EPOCH" ? "old epoch" : "no";
  switch (message) {
    case "VoteRequest": return `${m.isPreVote ? "pre-vote" : "vote"} e${m.epoch}?`;
    case "VoteResponse": return m.type === "VoteReply" ? "yes" : "no";
    case "FetchRequest": return `fetch ${m.offset}`;
    case "FetchResponse": return m.outcome === "records" ? (m.data.length ? plural(m.data.length, "batch") : "nothing new") : m.outcome === "diverging" ? "diverges" : m.outcome === "snapshot" ? "see snapshot" : `leader ${m.leader}`;
    case "BeginQuorumEpochRequest": return `begin e${m.epoch}`;
    case "EndQuorumEpochRequest": return `end e${m.epoch}`;
    case "FetchSnapshotRequest": return "snapshot?";
    case "FetchSnapshotResponse": return "piece";
    default: return message.endsWith("Response") ? "ok" : message.replace("Request", "");
  }
}

// A message as a noun.
function noun({ message, m = {}, text }, who) {
  const error = errorOf({ text });
  if (error) return `the answer “${ERRORS[error]}”${m.leader >= 0 && error !== "INVALID_VOTER_KEY" ? ` (${who(m.leader)} leads epoch ${m.epoch})` : ""}`;
  switch (message) {
    case "VoteRequest": return `a request for a ${m.isPreVote ? "pre-vote" : "vote"} in epoch ${m.isPreVote ? `after ${m.epoch}` : m.epoch}, with a log that ends at ${m.end} in epoch ${m.lastEpoch}`;
    case "VoteResponse": return m.type === "VoteReply" ? `a ${m.isPreVote ? "pre-vote" : "vote"}` : "a refusal to vote";
    case "FetchRequest": return `a fetch from offset ${m.offset}`;
    case "FetchResponse":
      if (m.outcome === "records") return `${m.data.length ? plural(m.data.length, "batch") : "no new records"} and the high watermark ${m.hw < 0 ? "(unknown)" : m.hw}`;
      if (m.outcome === "diverging") return `the news that the logs diverge: its epoch ${m.data[0]} ends at ${m.data[1]}`;
      return m.outcome === "snapshot" ? "the news that it needs a snapshot" : m.leader >= 0 ? `the news that ${who(m.leader)} leads epoch ${m.epoch}` : "an empty answer";
    case "BeginQuorumEpochRequest": return `the news that it leads epoch ${m.epoch}`;
    case "EndQuorumEpochRequest": return `the news that it stops leading epoch ${m.epoch}`;
    case "FetchSnapshotRequest": return "a request for a piece of a snapshot";
    case "FetchSnapshotResponse": return "a piece of a snapshot";
    default: return `${message.endsWith("Response") ? "the answer" : "the request"} ${text}`;
  }
}

function state(me, node, because) {
  switch (node.state) {
    case "prospective": return `${me} asks whether it would get votes in an epoch after ${node.epoch}, because ${because}`;
    case "candidate": return `${me} starts an election in epoch ${node.epoch} and votes for itself, because ${because}`;
    case "leader": return `${me} leads epoch ${node.epoch}, because ${because}`;
    case "resigned": return `${me} leads epoch ${node.epoch} no longer, because ${because}`;
    default: return `${me} knows of epoch ${node.epoch} but of no leader, because ${because}`;
  }
}

// The sentence of step `at`, and its term.
export function say(run, at) {
  const step = run.steps[at], moment = run.moments[at], node = moment.nodes[step.node], who = (id) => nameOf(run, id, at);
  const me = node && who(step.node), sent = step.sent_in === undefined ? step : run.steps[step.sent_in], words = (step.text ?? "").replaceAll(/\bn(\d+)\b/g, (_, id) => who(Number(id)));
  const sentence = () => {
    switch (step.event) {
      case "boot": return `${me} starts: ${words.replace(/^.*? starts: /, "") || "its disk is empty"}`;
      case "state": {
        const row = REASONS.find(([pattern]) => pattern.test(step.text)), because = row ? row[1].replace("$", who(Number(row[0].exec(step.text)[1]))) : words;
        if (node.state === "follower") return `${me} follows ${who(node.leader)} in epoch ${node.epoch}, because ${because}`;
        return /^votes for/.test(step.text) ? `${me} votes for ${who(node.voted)} in epoch ${node.epoch}: the first to ask, with a log that is good enough` : state(me, node, because);
      }
      case "gone": return `${me} learns that its leader is gone`;
      case "append": return node.state === "leader" ? `${me}, the leader, appends ${plural(step.batches.length, "batch")} at offset ${step.offset}` : `${me} copies ${plural(step.batches.length, "batch")} of its leader to offset ${step.offset}`;
      case "truncate": return `${me} cuts its log at offset ${step.offset}, because its leader has other records there`;
      case "install": return `${me} replaces its log by a snapshot that ends at ${step.offset}`;
      case "clean": return `${me} removes what its snapshot replaces: its log begins at ${step.offset} now`;
      case "commit": return node.state === "leader" ? `Records before ${node.hw} are committed: a majority has them on disk, and ${me} raises its high watermark` : `${me} hears that records before ${node.hw} are committed`;
      case "store": return `${me} writes epoch ${node.epoch} and its vote to its disk; promises wait for that`;
      case "stored": return `Epoch ${node.epoch} and the vote of ${me} are on its disk, so its promises may leave`;
      case "durable": return `The log of ${me} is on its disk up to ${node.durable}`;
      case "send": return `${me} sends ${who(step.peer)} ${noun(step, who)}`;
      case "reply": return `${me} answers ${who(step.peer)} with ${noun(step, who)}`;
      case "receive": case "answer": {
        if (step.sent_in === undefined) return `An operator asks ${me}: ${words}`;
        const again = run.bySend.get(step.sent_in).arrivals.indexOf(at) > 0 ? " once more" : "";
        return `${me} gets ${noun(sent, who)} from ${who(step.peer)}${again}${step.awaited === false ? ", and does not wait for it any more" : ""}`;
      }
      case "ask": return `A client wants to read what is committed at ${me}, which must make sure first that it still leads`;
      case "ready": return `${me} still leads, so the read may be answered from offset ${step.offset}`;
      case "strike": return `Fault ${step.fault}${step.hit ? ` strikes ${step.hit.map(who).join(", ")}` : " finds nothing to strike"}. ${run.seed.faults[step.fault]}${words ? `: ${words}` : ""}`;
      case "verdict": return words ? `Rule broken: ${words}. The rule says: ${run.seed.rule || "the code refuses to go on"}` : "The run ends, and all rules held";
      default: return words;
    }
  };
  const told = sentence(), isFlying = step.event === "send" || step.event === "reply" || step.sent_in !== undefined;
  const terms = isFlying ? (sent.m?.isPreVote ? "pre-vote, KIP-996" : TERMS[sent.message.replace("Response", "Request")] ?? TERMS.AddVoterRequest) : step.event === "state" ? STATE_TERMS[node.state] : EVENT_TERMS[step.event] ?? "";
  return { sentence: `${told.charAt(0).toUpperCase()}${told.slice(1)}.`.replace(/\.\.$/, "."), term: terms };
}
