// Consumer groups with their lag, and one group with its members and partitions. Asked for every 5 s while the page is visible.
import { h, keyed, text, absence, alert, bar, cut, fact, field, grid, section, mark, count, plural, link, path, partitionLink, polled } from "./dom.js";

const ROWS = 50, MOST = 500, EVERY_MS = 5000;
const KINDS = { Stable: ["good", "✓"], Empty: ["unknown", "○"], Dead: ["bad", "✕"] };
const state = (name) => (name ? mark(KINDS[name]?.[0] ?? "unknown", `${KINDS[name]?.[1] ?? "↻"} ${name}`) : mark("unknown", "? not told"));
const SORTS = [["", "name"], ["-lag", "lag, most first"], ["-members", "members, most first"], ["-unknown", "unknown lag first"], ["state", "state"]];
const records = (lag) => (lag === null ? "?" : plural(lag, "record"));
const bars = (cell, name, lag, most) => bar(cell.firstChild, `lag of ${name}: ${records(lag)}`, [[(lag ?? 0) / most, "over"]]);
const missing = (silent) => Object.entries(silent).map(([id, why]) => `broker ${id} does not answer (${why})`).join("; ");

function list(view, app) {
  const more = cut(ROWS, ask), again = () => { more.reset(); ask(); };
  const total = h("p", { class: "note" }, "Asking every coordinator …"), fault = alert();
  let newest = 0, most = 1;
  const rows = grid("Consumer groups", ["~group", "state", "type", "#members", "#partitions", "#lag", "compared with the largest"], (each) => `${each.group_id} ${each.state}`,
    (each) => [link(path("groups", each.group_id), each.group_id), state(each.state), each.group_type || "–", "", "", "", h("div")], (each, cells) => {
      cells[3].title = each.members === null ? "Members of a group of the new consumer protocol (KIP-848) are not told by DescribeGroups" : "";
      cells[5].title = each.unknown ? `the lag of ${plural(each.unknown, "partition")} is unknown; the group's page says why` : "";
      bars(cells[6], each.group_id, each.lag, most);
      return [, , , count(each.members), count(each.partitions), `${each.unknown && each.lag !== null ? "≥ " : ""}${each.partitions ? records(each.lag) : "–"}`];
    });
  const fields = [field(app, "q", "Name contains", again, null, { "data-filter": true }), field(app, "topic", "Reads the topic", again), field(app, "sort", "Sort by", again, SORTS), field(app, "internal", "groups named __…", again, true)];
  view.append(h("section", null, h("div", { class: "filters" }, fields), total, fault, rows.node, more.node));

  async function ask() {
    const turn = ++newest, { q, topic, sort, internal } = Object.fromEntries(app.query);
    const found = await app.get("groups", { q, topic, sort, internal, limit: Math.min(more.shown, MOST) }).catch((error) => { if (turn === newest) text(fault, error.message); });
    if (turn !== newest || !found) return;
    most = found.most || 1;
    text(fault, Object.keys(found.silent).length ? `Groups and lag may be missing: ${missing(found.silent)}` : "");
    text(total, found.total ? `${plural(found.total, "group")}${topic ? ` with offsets in ${topic}` : ""}. Lag: records between the committed offset and the end of the log.` : q || topic ? "No group matches." : "There is no consumer group yet. A consumer makes one when it joins or commits.");
    rows.update(more.of(found.rows, Math.min(found.total, MOST)));
  }
  return { close: polled(EVERY_MS, ask) };
}

function one(view, app, id) {
  const facts = h("dl", { class: "facts" }), fault = alert(), why = h("p", { class: "unknown" }), total = h("span", { class: "note" }), more = cut(ROWS, draw);
  let found = null, most = 1;
  const members = grid("Members", ["client id", "host", "~member id", "~assignment"], (each) => `${each.member_id} ${each.assignment}`, (each) => {
    const topics = Object.entries(Object.groupBy(each.assignment, ([topic]) => topic)).map(([topic, parts]) => `${topic}: ${parts.map(([, number]) => number).join(", ")}`);
    return [each.client_id || "–", each.host, each.group_instance_id ? `${each.group_instance_id} (static)` : each.member_id, topics.join("; ") || "nothing"];
  });
  const lags = grid("Committed offsets and lag", ["partition", "#committed", "#end", "#lag", "compared with the largest", "~reason"], (each) => `${each.topic}-${each.partition}`,
    (each) => [partitionLink(each.topic, each.partition), "", "", "", h("div")], (each, cells) => {
      bars(cells[4], `${each.topic}-${each.partition}`, each.lag, most);
      return [, each.committed === null ? "none" : count(each.committed), count(each.end), records(each.lag), , each.unknown];
    });
  view.append(section(`Group ${id}`, fault, facts), section("Members", why, members.node), section("Partitions", h("div", { class: "tools" }, total), lags.node, more.node));
  const lack = absence(view, "/groups", "All groups");

  function draw() {
    lack(null);
    const known = found.lags.filter((each) => each.lag !== null), lag = known.reduce((sum, each) => sum + each.lag, 0), { described } = found, unknown = found.lags.length - known.length;
    most = Math.max(1, ...known.map((each) => each.lag));
    keyed(facts, [["state", found.state], ["type", found.group_type || "–"], ["members", count(described?.members.length)],
      ["lag", !found.lags.length ? "–" : !known.length ? "?" : `${unknown ? "≥ " : ""}${records(lag)}`], ["coordinator", described ? `broker ${described.coordinator_id}` : "?"], ["assignor", described?.assignor || "–"]],
    ([name, value]) => `${name} ${value}`, ([name, value]) => fact(name, h("dd", null, name === "state" ? state(value) : value)));
    text(fault, Object.keys(found.silent).length ? `Numbers may be missing: ${missing(found.silent)}` : "");
    text(why, !described ? `Unknown: ${found.unknown}.${/consumer/i.test(found.group_type) ? " DescribeGroups is for classic groups, and this one has the new consumer protocol (KIP-848)." : ""}` : described.members.length ? "" : "No member: nobody reads with this group now.");
    members.update(described?.members ?? []);
    text(total, found.lags.length ? `${plural(found.lags.length, "partition")}${unknown ? `, the lag of ${unknown} is unknown` : ""}` : "The group has no partition: no committed offset, and no assignment.");
    lags.update(more.of(found.lags));
  }
  return { close: polled(EVERY_MS, () => app.get(path("groups", id).slice(1)).then((answer) => { found = answer; draw(); }, (error) => { if (error.isUnknown) lack(`group ${id}`); else text(fault, error.message); })) };
}

export default { title: "Groups", open: (view, app) => (app.path[0] ? one(view, app, app.path.join("/")) : list(view, app)) };
