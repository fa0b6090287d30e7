// Consumer groups with their lag, and one group with its members and partitions. Asked for every 5 s while the page is visible.
import { h, keyed, text, bar, fact, table, mark, count, link, polled } from "./dom.js";

const ROWS = 50, EVERY_MS = 5000;
const KINDS = { Stable: ["good", "✓"], Empty: ["unknown", "○"], Dead: ["bad", "✕"] };
const state = (name) => (name ? mark(KINDS[name]?.[0] ?? "unknown", `${KINDS[name]?.[1] ?? "↻"} ${name}`) : mark("unknown", "? not told"));
const right = (name) => h("th", { scope: "col", class: "n" }, name);
const records = (lag) => (lag === null ? "?" : `${count(lag)} ${lag === 1 ? "record" : "records"}`);
const cells = (names) => names.map((name) => h("td", { "data-of": name }));
const missing = (silent) => Object.entries(silent).map(([id, why]) => `broker ${id} does not answer (${why})`).join("; ");

function list(view, app) {
  let shown = ROWS;
  const again = () => { shown = ROWS; ask(); };
  const field = (name, words, attributes = {}) => { const node = h("input", { type: "search", value: app.query.get(name) ?? "", oninput: () => { app.setQuery({ [name]: node.value.trim() }); again(); }, ...attributes }); return h("label", null, words, node); };
  const sort = h("select", { onchange: () => { app.setQuery({ sort: sort.value }); again(); } },
    [["", "name"], ["-lag", "lag, most first"], ["-members", "members, most first"], ["-unknown", "unknown lag first"], ["state", "state"]].map(([value, words]) => h("option", { value }, words)));
  sort.value = app.query.get("sort") ?? "";
  const hidden = h("input", { type: "checkbox", checked: app.query.has("internal"), onchange: () => { app.setQuery({ internal: hidden.checked ? "1" : null }); again(); } });
  const total = h("p", { class: "note" }, "Asking every coordinator …"), fault = h("p", { class: "bad", role: "alert" }), body = h("tbody");
  const more = h("button", { hidden: true, onclick: () => { shown += ROWS; ask(); } }, "Show more");
  view.append(h("section", null,
    h("div", { class: "filters" }, field("q", "Name contains", { "data-filter": true }), field("topic", "Reads the topic"), h("label", null, "Sort by", sort), h("label", null, "Groups named __…", hidden)),
    total, fault, table("Consumer groups", ["group", "state", "type", right("members"), right("partitions"), right("lag"), "against the largest"], body), more));

  let newest = 0;
  async function ask() {
    const turn = ++newest, { q, topic, sort: by, internal } = Object.fromEntries(app.query);
    let found;
    try { found = await app.get("groups", { q, topic, sort: by, internal, limit: Math.min(shown, 500) }); } catch (error) { if (turn === newest) text(fault, error.message); return; }
    if (turn !== newest) return;
    text(fault, Object.keys(found.silent).length ? `Groups and lag may be missing: ${missing(found.silent)}` : "");
    text(total, found.total ? `${count(found.total)} ${found.total === 1 ? "group" : "groups"}${topic ? ` with offsets in ${topic}` : ""}. Lag: records between the committed offset and the end of the log.` : q || topic ? "No group matches." : "There is no consumer group yet. A consumer makes one when it joins or commits.");
    more.hidden = found.rows.length >= found.total || shown >= 500;
    keyed(body, found.rows, (each) => `${each.group_id} ${each.state}`, (each) => {
      const row = h("tr", { "data-row": true, tabindex: "-1" }, h("th", { scope: "row", class: "wrap" }, link(`/groups/${encodeURIComponent(each.group_id)}`, each.group_id)), cells(["state", "type", "members", "partitions", "lag", "against the largest"]));
      row.children[1].append(state(each.state));
      for (const at of [3, 4, 5]) row.children[at].className = "n";
      row.children[6].append(h("div"));
      return row;
    }, (row, each) => {
      text(row.children[2], each.group_type || "–");
      text(row.children[3], each.members === null ? "?" : count(each.members)).title = each.members === null ? "Members of a group of the new consumer protocol (KIP-848) are not told by DescribeGroups" : "";
      text(row.children[4], count(each.partitions));
      text(row.children[5], `${each.unknown && each.lag !== null ? "≥ " : ""}${each.partitions ? records(each.lag) : "–"}`).title = each.unknown ? `the lag of ${each.unknown} partitions is unknown; the group's page says why` : "";
      bar(row.children[6].firstChild, `lag of ${each.group_id}: ${records(each.lag)}`, [[(each.lag ?? 0) / (found.most || 1), "over"]]);
    });
  }
  return { close: polled(EVERY_MS, ask) };
}

function one(view, app, id) {
  const facts = h("dl", { class: "facts" }), fault = h("p", { class: "bad", role: "alert" }), members = h("tbody"), lags = h("tbody"), why = h("p", { class: "unknown" });
  const total = h("span", { class: "note" }), more = h("button", { hidden: true, onclick: () => { shown += ROWS; draw(); } }, "Show more");
  let shown = ROWS, found = null;
  view.append(h("section", null, h("h2", null, `Group ${id}`), fault, facts),
    h("section", null, h("h2", null, "Members"), why, table("Members", ["client id", "host", "member id", "assignment"], members)),
    h("section", null, h("h2", null, "Partitions"), h("div", { class: "tools" }, total), table("Committed offsets and lag", ["partition", right("committed"), right("end"), right("lag"), "against the largest", "reason"], lags), more));

  function draw() {
    const known = found.lags.filter((each) => each.lag !== null), lag = known.reduce((sum, each) => sum + each.lag, 0), most = Math.max(1, ...known.map((each) => each.lag));
    const described = found.described, unknown = found.lags.length - known.length;
    keyed(facts, [["state", found.state], ["type", found.group_type || "–"], ["members", described ? count(described.members.length) : "?"],
      ["lag", !found.lags.length ? "–" : !known.length ? "?" : `${unknown ? "≥ " : ""}${records(lag)}`], ["coordinator", described ? `broker ${described.coordinator_id}` : "?"], ["assignor", described?.assignor || "–"]],
    ([name, value]) => `${name} ${value}`, ([name, value]) => fact(name, h("dd", null, name === "state" ? state(value) : value)));
    text(fault, Object.keys(found.silent).length ? `Numbers may be missing: ${missing(found.silent)}` : "");
    text(why, !described ? `Unknown: ${found.unknown}.${/consumer/i.test(found.group_type) ? " DescribeGroups is for classic groups, and this one has the new consumer protocol (KIP-848)." : ""}` : described.members.length ? "" : "No member: nobody reads with this group now.");
    keyed(members, described?.members ?? [], (each) => `${each.member_id} ${each.assignment}`, (each) => {
      const topics = Object.entries(Object.groupBy(each.assignment, ([topic]) => topic)).map(([topic, parts]) => `${topic}: ${parts.map(([, number]) => number).join(", ")}`);
      return h("tr", { "data-row": true, tabindex: "-1" }, h("th", { scope: "row" }, each.client_id || "–"), h("td", { "data-of": "host" }, each.host), h("td", { "data-of": "member id", class: "wrap" }, each.group_instance_id ? `${each.group_instance_id} (static)` : each.member_id), h("td", { "data-of": "assignment", class: "wrap" }, topics.join("; ") || "nothing"));
    });
    text(total, found.lags.length ? `${count(found.lags.length)} partitions${unknown ? `, the lag of ${unknown} is unknown` : ""}` : "The group has no partition: no committed offset, and no assignment.");
    more.hidden = found.lags.length <= shown;
    keyed(lags, found.lags.slice(0, shown), (each) => `${each.topic}-${each.partition}`, (each) => {
      const row = h("tr", { "data-row": true, tabindex: "-1" }, h("th", { scope: "row" }, link(`/topics/${encodeURIComponent(each.topic)}/${each.partition}`, `${each.topic}-${each.partition}`)), cells(["committed", "end", "lag", "against the largest", "reason"]));
      for (const at of [1, 2, 3]) row.children[at].className = "n";
      row.children[4].append(h("div"));
      row.children[5].className = "wrap";
      return row;
    }, (row, each) => {
      [each.committed === null ? "none" : count(each.committed), count(each.end), records(each.lag)].forEach((words, at) => text(row.children[at + 1], words));
      bar(row.children[4].firstChild, `lag of ${each.topic}-${each.partition}: ${records(each.lag)}`, [[(each.lag ?? 0) / most, "over"]]);
      text(row.children[5], each.unknown);
    });
  }
  const close = polled(EVERY_MS, () => app.get(`groups/${encodeURIComponent(id)}`).then((answer) => { found = answer; draw(); }, (error) => text(fault, error.message)));
  return { close };
}

export default { title: "Groups", open: (view, app) => (app.path[0] ? one(view, app, app.path.join("/")) : list(view, app)) };
