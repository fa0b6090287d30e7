// The last elections, and one of them in place: who voted, how long nobody led, and the records before and after.
import { h, svg, keyed, text, set, fact, table, count, span, moment, clock, link } from "./dom.js";
import { eventTable } from "./events.js";

const AROUND = 8, LISTED = 12;

// The messages of an election as the server placed them: nodes side by side, time downwards, and the same as a table.
function picture({ diagram, note }, { epoch, leader }) {
  const words = h("p", { class: "note wrap" }, note);
  if (!diagram) return [words];
  const { lanes, times, marks, arrows, width, height } = diagram, label = `The election of controller ${leader} in epoch ${epoch}: ${arrows.length} arrows between ${lanes.length} controllers; the table below has them`;
  const ms = (at_us) => `${at_us > 0 ? "+" : at_us < 0 ? "−" : ""}${Math.abs(at_us / 1000).toFixed(1)} ms`;
  const tips = ["sent", "inferred"].map((look) => svg("marker", { id: `tip-${look}`, viewBox: "0 0 10 10", refX: 9, refY: 5, markerWidth: 7, markerHeight: 7, orient: "auto" }, svg("path", { class: `tip ${look}`, d: "M0,1L10,5L0,9z" })));
  const arrow = ({ x1, y1, x2, y2, look, whole, text: about }) => svg("g", { class: look }, svg("title", null, whole), svg("line", { x1, y1, x2, y2, "marker-end": ["sent", "inferred"].includes(look) && `url(#tip-${look})` }),
    look === "lost" && svg("text", { class: "cross-out", x: x2, y: y2 + 4 }, "✕"), svg("text", { class: "note", x: x1 + (x2 < x1 ? -8 : 8), y: y1 + 2, "text-anchor": x2 < x1 && "end" }, about));
  const mark = ({ x, y, look, whole, text: about, has_arrow }) => svg("g", { class: look }, svg("title", null, whole), svg("circle", { cx: x, cy: y, r: look === "leader" ? 6 : 4 }), svg("text", { x: x + 10, y: y + (has_arrow ? -4 : 4) }, about));
  const rows = [...arrows.map(({ y1, whole }) => [y1, whole]), ...marks.map(({ y, whole }) => [y, whole])].sort(([a], [b]) => a - b);
  const timeOf = (row) => ms(times.findLast(([y]) => y <= row)[1]);
  return [words,
    h("div", { class: "scroll space", tabindex: "0", role: "region", "aria-label": "Messages of the election" },
      svg("svg", { class: "names", width, height: 24, "aria-hidden": "true" }, lanes.map(([x, name]) => svg("text", { class: "lane-name", x, y: 16 }, name))),
      svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, svg("defs", null, tips), lanes.map(([x]) => svg("line", { class: "lane", x1: x, x2: x, y1: 0, y2: height })),
        times.map(([y, at_us]) => svg("text", { class: "when", x: 78, y: y + 4 }, ms(at_us))), arrows.map(arrow), marks.map(mark))),
    h("details", null, h("summary", null, "The same as a table"), table(label, ["time", "what"], h("tbody", null, rows.map(([y, whole]) => h("tr", null, h("td", { "data-of": "time" }, timeOf(y)), h("td", { "data-of": "what", class: "wrap" }, whole))))))];
}

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
      "gap before its first record": each.silent_ms === null ? "?" : span(each.silent_ms), "controllers without a leader meanwhile": unknownTo(each) || "none was seen",
      "records in this epoch": `${count((end ?? app.state.log?.offset ?? each.offset) - each.offset)}${end === null ? " so far" : ""}`,
    };
    const events = await Promise.all([app.get("records", { after: each.offset, before: Math.min(end ?? Infinity, each.offset + 500, app.state.log?.offset ?? Infinity), limit: 500 }), app.get("records", { before: each.offset, limit: AROUND }), app.get("election", { epoch }).catch((error) => ({ note: error.message }))]).catch((error) => { if (mine === asked) panel.replaceChildren(h("p", { class: "bad", role: "alert" }, error.message)); return null; });
    if (mine !== asked || !events) return;
    const table = eventTable(`Records around the election of epoch ${epoch}`);
    table.update([...events[0].events.slice(-AROUND), ...events[1].events.slice(0, AROUND)]);
    panel.replaceChildren(h("h3", null, `The election of epoch ${epoch}`), h("dl", { class: "facts" }, Object.entries(facts).map(([name, value]) => fact(name, h("dd", null, value)))),
      h("h3", null, "Messages that led to it, and the first ones after"), ...picture(events[2], each),
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
