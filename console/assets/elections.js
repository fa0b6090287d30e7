// The last elections, and one of them in place: who voted, how long nobody led, and the records before and after.
import { h, keyed, text, set, fact, count, span, moment, clock, link } from "./dom.js";
import { eventTable } from "./events.js";

const AROUND = 8, LISTED = 12;

export function elections(app) {
  const list = h("ol", { class: "plain legend choice elections" }), none = h("p", { class: "note" }), panel = h("div", { id: "election", tabindex: "-1" });
  const node = h("div", null, h("h3", null, "Show an election"), list, none, panel);
  let known = [], since = 0, read = null, readAt = 0, tries = 0, asked = 0;
  const chosen = () => Number(app.query.get("election")) || null;

  function show(epoch) {
    app.setQuery({ election: epoch === chosen() ? null : epoch });
    draw().then(() => { if (chosen()) panel.focus({ preventScroll: true }); });
  }

  function make(each) {
    return h("li", null, h("button", { onclick: () => show(each.epoch) }, `▲ epoch ${each.epoch}: controller ${each.leader}`, h("small", { title: moment(each.at_ms) }, clock(each.at_ms))));
  }

  // Time in which a controller said that it knows no leader, where somebody looked, as words.
  function unknownTo(each) {
    const from = (each.at_ms - (each.silent_ms ?? 0) - 2000) * 1000, to = (each.at_ms + 2000) * 1000;
    return (app.state.lanes ?? []).flatMap((lane) => lane.spans.filter((part) => part.text.startsWith("knows no leader") && part.begin_us < to && (part.end_us ?? to) > from)
      .map((part) => `${lane.label}: ${part.end_us === null ? "until now" : span((part.end_us - part.begin_us) / 1000)}`)).join(", ");
  }

  async function draw() {
    const mine = ++asked, epoch = chosen();
    keyed(list, known.slice(-LISTED).reverse(), (each) => each.offset, make, (item, each) => set(item.firstChild, { "aria-pressed": String(each.epoch === epoch) }));
    text(none, known.length ? "" : `There was no election since offset ${count(since)}.`);
    if (epoch === null) { panel.replaceChildren(); return; }
    const place = known.findIndex((each) => each.epoch === epoch), each = known[place];
    if (!each) { panel.replaceChildren(h("p", { class: "note" }, `No election of epoch ${epoch} is among the records since offset ${count(since)}. `, link("/events?kind=quorum", "Look further back"))); return; }
    const end = known[place + 1]?.offset ?? null;
    const facts = {
      leader: `controller ${each.leader}`, "elected at": moment(each.at_ms), "granted by": each.granted.join(", ") || "?",
      "did not vote for it": each.voters.filter((id) => !each.granted.includes(id)).join(", ") || "none",
      "time without a record before": each.silent_ms === null ? "?" : span(each.silent_ms), "controllers without a leader meanwhile": unknownTo(each) || "none was seen",
      "records in the epoch before": place ? count(each.offset - known[place - 1].offset) : `at least ${count(each.offset - since)}`,
      "records in this epoch": `${count((end ?? app.state.log?.offset ?? each.offset) - each.offset)}${end === null ? " so far" : ""}`,
    };
    const events = await Promise.all([app.get("records", { after: each.offset, before: Math.min(end ?? Infinity, each.offset + 500, app.state.log?.offset ?? Infinity), limit: 500 }), app.get("records", { before: each.offset, limit: AROUND })]).catch((error) => { if (mine === asked) panel.replaceChildren(h("p", { class: "bad", role: "alert" }, error.message)); return null; });
    if (mine !== asked || !events) return;
    const table = eventTable(`Records around the election of epoch ${epoch}`);
    table.update([...events[0].events.slice(-AROUND), ...events[1].events.slice(0, AROUND)]);
    panel.replaceChildren(h("h3", null, `The election of epoch ${epoch}`), h("dl", { class: "facts" }, Object.entries(facts).map(([name, value]) => fact(name, h("dd", null, value)))),
      h("h3", null, "Records around it, the newest first"), table.node,
      h("p", null, link(`/time?at=${each.offset}`, "The metadata before it"), " · ", link(`/events?from=${each.offset + 1}&kind=quorum`, "Events of the quorum until then"), " · ", h("button", { onclick: () => show(epoch) }, "Close")));
  }

  // A new leader, or a log that was not read yet, is a reason to read; records are not.
  async function update() {
    const epoch = app.state.quorum?.leader_epoch, { log } = app.state;
    if (!log || app.about.speaks_kafka || epoch === undefined) return;
    if (epoch === read && (tries <= 0 || log.offset === readAt || known.at(-1)?.epoch >= epoch)) return; // its record may come a little later
    tries = epoch === read ? tries - 1 : 5;
    read = epoch;
    readAt = log.offset;
    try { ({ elections: known, since } = await app.get("marks")); await draw(); } catch (error) { read = null; text(none, error.message); }
  }
  node.hidden = app.about.speaks_kafka === true;
  return { node, show, update, close() { asked++; } };
}
