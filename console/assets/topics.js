// Topics and partitions as long lists, one topic with its configs, and one partition with its replicas and its whole history.
import "./lanes.js";
import { h, svg, set, text, absence, button, link, path, partitionLink, fact, factList, field, grid, section, mark, count, bytes, clock, moment } from "./dom.js";
import { form } from "./actions.js";
import { windowed } from "./window.js";

const STATES = { // class, words, and short words for a row
  offline: ["bad", "✕ offline", "✕ offline"], urp: ["unknown", "▲ under-replicated", "▲ URP"], "under-min-isr": ["bad", "✕ under min ISR", "✕ min ISR"],
  moving: ["", "→ moving", "→ moves"], skewed: ["", "◇ skewed", "◇ skew"],
};
const SOURCES = ["?", "topic", "broker", "all brokers", "broker's file", "default"];
const ROLES = { adding_replicas: "→ being added", removing_replicas: "← being removed", eligible_leader_replicas: "eligible leader", last_known_elr: "last known eligible leader" };
const ids = (some) => some.join(", ") || "–";
const pills = (states, at = 1) => (states.length ? h("span", { title: states.map((name) => STATES[name][1]).join(", ") }, states.map((name) => [mark(STATES[name][0], STATES[name][at]), " "])) : h("span", { class: "good" }, "✓ in sync"));
const wordsOf = (name) => STATES[name]?.[1].slice(2) ?? name;
const { drawLanes, heightOf } = globalThis.kraftlabLanes;

// Read again after changes of the topics that `concerns` chooses, at most twice a second. The log names 20 topics of a batch.
function follow(app, concerns, read) {
  let timer = 0;
  const soon = () => { timer ||= setTimeout(() => { timer = 0; read(); }, 500); };
  app.onChange = ({ reset, topics }) => { if (reset || topics.length >= 20 || topics.some(concerns)) soon(); };
  let known = null;
  return { soon, close: () => clearTimeout(timer), update() { // a cluster of Apache Kafka tells no changes, but its counts
    const counts = JSON.stringify(app.state.topics);
    if (app.about.speaks_kafka && known && counts !== known) soon();
    known = counts;
  } };
}

// A long list whose filters and order are in the URL.
function listOf(app, label, noun, address, columns, keyOf, cells, topic = null) {
  const wanted = () => Object.fromEntries(["q", "broker", "state", "sort"].map((name) => [name, app.query.get(name)]));
  return windowed(label, noun, columns, {
    load: (from, limit) => app.get(address, { ...wanted(), topic, internal: topic || app.query.get("internal") ? null : 0, from, limit }),
    sort: () => app.query.get("sort") ?? "", onSort: (sort) => app.setQuery({ sort }), keyOf, cells,
  });
}

function partitionList(app, topic, sizes = null) {
  const columns = [
    { title: "partition", width: "minmax(160px, 3fr)", sort: topic ? "partition_index" : "topic" }, { title: "state", width: "minmax(226px, 2fr)" },
    { title: "leader", width: "80px", sort: "leader_id" }, { title: "replicas", width: "minmax(90px, 1fr)", sort: "replica_nodes" },
    { title: "in sync", width: "minmax(90px, 1fr)", sort: "isr_nodes" }, { title: "epoch", width: "80px", sort: "leader_epoch" },
    ...(sizes ? [{ title: "size of each replica", width: "minmax(150px, 2fr)" }] : []),
  ];
  return listOf(app, topic ? `Partitions of ${topic}` : "Partitions", "partition", "partitions", columns, (row) => `${row.topic}-${row.partition_index}`, (row) => [
    partitionLink(row.topic, row.partition_index), pills(row.states, 2), row.leader_id ?? h("b", { class: "bad" }, "none"), ids(row.replica_nodes), ids(row.isr_nodes), String(row.leader_epoch),
    ...(sizes ? [row.replica_nodes.map((id) => bytes(sizes.get(`${row.partition_index} ${id}`))).join(" · ")] : []),
  ], topic);
}

function topicList(app) {
  const numbers = [["partitions", "partitions"], ["replication_factor", "replicas"], ...Object.keys(STATES).map((name) => [name, wordsOf(name)])];
  const columns = [{ title: "topic", width: "minmax(160px, 4fr)", sort: "name" }, ...numbers.map(([sort, title]) => ({ title, sort, width: "minmax(84px, 1fr)", n: "n" }))];
  return listOf(app, "Topics", "topic", "topics", columns, (row) => row.name, (row) => [
    link(path("topics", row.name), row.name), count(row.partitions), String(row.replication_factor), ...Object.entries(STATES).map(([name, [kind]]) => (row[name] ? h("b", { class: kind }, count(row[name])) : "–")),
  ]);
}

// Filters that stay in the URL. `names`: which of q, state, broker, internal.
function filters(app, names, list) {
  const changed = () => list.reload(true), all = {
    q: ["Filter by name", null, { "data-filter": true }], state: ["State", [["", "any"], ...Object.keys(STATES).map((name) => [name, STATES[name][1]])]], broker: ["Broker", [["", "all"]]], internal: ["internal topics", true],
  };
  const fields = names.map((name) => field(app, name, all[name][0], changed, ...all[name].slice(1)));
  return { node: fields, update: () => fields[names.indexOf("broker")].offer([["", "all"], ...(app.state.brokers?.brokers ?? []).map((each) => each.broker_id)]) };
}

async function create(app, list) {
  const given = await form("Create a topic", [["name", "Name", "", { required: true, pattern: "[A-Za-z0-9._\\-]+", maxlength: 249 }], ["partitions", "Partitions (empty: the default)", "", { type: "number", min: 1 }],
    ["replicas", "Replicas (empty: the default)", "", { type: "number", min: 1 }], ["configs", "Configs, one NAME=VALUE a line", "", { rows: 3 }]]);
  if (!given) return;
  const configs = given.configs.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => ({ name: line.split("=")[0], value: line.split("=").slice(1).join("=") }));
  const wanted = { name: given.name, num_partitions: Number(given.partitions) || -1, replication_factor: Number(given.replicas) || -1, configs };
  if (await app.act("create-topic", { topics: [wanted] }, { title: `Create topic ${given.name}`, button: "Create" })) list.reload();
}

function openAll(view, app) {
  const isPartitions = app.query.get("view") === "partitions", list = isPartitions ? partitionList(app, null) : topicList(app);
  const chosen = filters(app, ["q", "state", "broker", "internal"], list);
  const facts = ["topics", "partitions", ...Object.keys(STATES)].map((name) => [name, link(name === "topics" ? "/topics?internal=1" : `/topics?view=partitions&internal=1${STATES[name] ? `&state=${name}` : ""}`, "…")]);
  const views = ["Topics", "Partitions"].map((title) => link("/topics", title));
  view.append(
    h("section", { class: "counted" }, h("dl", { class: "facts" }, facts.map(([name, node]) => fact(wordsOf(name), node)))),
    section(isPartitions ? "Partitions" : "Topics", h("div", { class: "filters" }, h("nav", { class: "views", "aria-label": "View" }, views), chosen.node, button("Create a topic", () => create(app, list))), list.node));
  const kept = follow(app, (name) => name.includes(app.query.get("q") ?? ""), () => list.reload());
  return { close: kept.close, update() {
    chosen.update();
    kept.update();
    for (const [name, node] of facts) set(text(node, app.state.topics ? count(app.state.topics[name]) : "…"), { class: STATES[name]?.[0] && app.state.topics?.[name] ? STATES[name][0] : null });
    views.forEach((node, at) => {
      const query = new URLSearchParams(app.query);
      query.set("view", ["topics", "partitions"][at]);
      query.delete("sort");
      set(node, { href: `/topics?${query}`, "aria-current": Boolean(at) === isPartitions ? "page" : null });
    });
  } };
}

function openTopic(view, app, name) {
  const sizes = new Map(), list = partitionList(app, name, sizes), chosen = filters(app, ["state", "broker"], list);
  const [dl, facts] = factList(["topic id", "partitions", "replicas", ...Object.keys(STATES)], wordsOf), note = h("p", { class: "note", role: "status" });
  let topic = null, leaves = false;
  const act = async (...request) => { if (await app.act(...request)) { read(); list.reload(); } };
  const number = async (action, title, label, field, value, button) => {
    const given = await form(title, [["value", label, value, { type: "number", min: 1, required: true }]]);
    if (given) act(action, { topics: [{ name, [field]: Number(given.value) }] }, { title, button });
  };
  async function elect() {
    const { rows } = await app.get("partitions", { topic: name, state: "skewed", limit: 500 });
    if (!rows.length) { app.say("Every leader is the preferred replica"); return; }
    const values = [{ topic: name, partitions: rows.map((row) => row.partition_index) }];
    act("elect", { election_type: 0, topic_partitions: { values } }, { title: `Elect preferred leaders of ${name}`, button: "Elect" });
  }
  async function change({ name: key, value, config_source: source }) {
    const given = await form(`Change ${key}`, [["value", source === 1 ? "Value (empty: remove it from the topic)" : "Value", value ?? "", {}]]);
    const config = { name: key, ...(given?.value === "" ? { config_operation: 1 } : { config_operation: 0, value: given?.value }) };
    if (given) act("configure", { resources: [{ resource_type: 2, resource_name: name, configs: [config] }] }, { title: `Change ${key} of ${name}`, button: "Change" });
  }
  async function remove() {
    leaves = true;
    if (await app.act("delete-topic", { topics: [{ name }] }, { title: `Delete topic ${name}`, button: "Delete" })) app.go("/topics");
    else leaves = false;
  }
  const configs = grid(`Effective configs of ${name}`, ["config", "~value", "from", "action"], (each) => each.name, (each) => [each.name], (each, cells) => {
    set(cells[2], { class: each.config_source === 1 ? "own" : null });
    cells[3].replaceChildren(button("Change", () => change(each), null, { "aria-label": `Change ${each.name}` }));
    return [, each.is_sensitive ? "(hidden)" : each.value || "–", SOURCES[each.config_source] ?? "?"];
  }, "", null);
  view.append(
    h("section", null, h("h2", null, link("/topics", "Topics"), " / ", name), dl,
      h("div", { class: "tools acts" }, button("Add partitions", () => number("add-partitions", `Add partitions to ${name}`, "Partitions in all", "count", (topic?.partitions ?? 0) + 1, "Add")),
        button("Replication factor", () => number("replication-factor", `Replication factor of ${name}`, "Replicas of each partition", "replication_factor", topic?.replication_factor, "Change")),
        button("Elect preferred leaders", elect), button("Delete", remove, "danger")), note),
    section("Partitions", h("div", { class: "filters" }, chosen.node), list.node), section("Configs", configs.node));
  const lack = absence(view, "/topics", "All topics");
  async function read() {
    let found;
    try { found = await app.get(path("topics", name).slice(1)); } catch (error) { if (error.isUnknown) lack(`topic ${name}`); else text(note, error.message); return; }
    ({ topic } = found);
    lack(null);
    text(note, "");
    for (const [each, node] of Object.entries(facts)) text(node, { "topic id": topic.topic_id, replicas: topic.replication_factor }[each] ?? count(topic[each]));
    configs.update(found.configs.toSorted((one, other) => (other.config_source === 1) - (one.config_source === 1)));
    if (topic.partitions > 1000 || sizes.size) return;
    const { brokers } = await app.get("disks", { topic: name });
    for (const [id, { log_dirs: found }] of Object.entries(brokers)) for (const { replicas } of found) for (const each of replicas) if (!each.is_future_key) sizes.set(`${each.partition_index} ${id}`, each.partition_size);
    list.redraw();
  }
  const kept = follow(app, (each) => each === name && !leaves, () => { read(); list.reload(); });
  read();
  return { close: kept.close, update() { chosen.update(); kept.update(); } };
}

// Lanes of the replicas in sync and the leader, from the words of the history.
function lanesOf(history) {
  const lanes = new Map();
  let isr = [], leader = -1;
  for (const { change, append_time_ms: at } of history) {
    isr = /isr(?:: \[[\d,]*\] ->)? \[([\d,]*)\]/.exec(change)?.[1].split(",").filter(Boolean).map(Number) ?? isr;
    leader = Number(/leader(?:: -?\d+ ->)?:? (-?\d+)/.exec(change)?.[1] ?? leader);
    if (/^topic .* is deleted$/.test(change)) [isr, leader] = [[], -1];
    for (const id of new Set([...isr, leader, ...lanes.keys()])) {
      if (id < 0) continue;
      const spans = lanes.get(id) ?? lanes.set(id, []).get(id), last = spans.at(-1), words = id === leader ? "leads" : isr.includes(id) ? "in sync" : null;
      if (last?.end_us === null && last.text === words) continue;
      if (last?.end_us === null) last.end_us = at * 1000;
      if (words) spans.push({ begin_us: at * 1000, end_us: null, about: String(id), text: words, short: words });
    }
  }
  return [...lanes].sort(([one], [other]) => one - other).map(([id, spans]) => ({ label: `broker ${id}`, spans }));
}

function openPartition(view, app, topic, index) {
  const name = `${topic}-${index}`, note = h("p", { class: "note", role: "status" });
  const drawing = svg("svg", { role: "img", height: 0, "aria-label": "Leader and replicas in sync over time: not read yet" }), chart = h("div", { class: "chart" }, drawing);
  const [dl, facts] = factList(["state", "leader", "leader epoch", "partition epoch", "eligible leaders", "last known eligible"]);
  const columns = [{ title: "time", width: "minmax(150px, 1fr)" }, { title: "offset", width: "90px", n: "n" }, { title: "epoch", width: "60px", n: "n" }, { title: "change", width: "minmax(200px, 6fr)" }, { title: "by", width: "minmax(110px, 2fr)" }];
  let row = null, disks = null, history = [], known = new Promise(() => {});
  const past = app.about.speaks_kafka ? null : windowed(`History of ${name}`, "record", columns, {
    load: (from, limit) => known.then((all) => ({ total: all.length, rows: all.toReversed().slice(from, from + limit) })), keyOf: (each) => `${each.offset} ${each.change}`,
    cells: (each) => [moment(each.append_time_ms), link(`/time?at=${each.offset}`, count(each.offset)), String(each.epoch), each.change,
      [each.initiator, each.plan_id && `plan ${each.plan_id}`, each.reason].filter(Boolean).join(", ") || "–"],
  });
  const act = async (...request) => { if (await app.act(...request)) read(); };
  const elect = (type, title) => act("elect", { election_type: type, topic_partitions: { values: [{ topic, partitions: [index] }] } }, { title, button: "Elect" });
  const directories = (id) => (app.state.disks ?? disks)?.brokers[id]?.log_dirs.filter((each) => !each.error_code) ?? [];
  async function moveTo(id, present) {
    const others = directories(id).map((each) => each.log_dir).filter((each) => each !== present);
    const given = await form(`Move ${name} of broker ${id}`, [["path", "To log directory", others[0], { options: others }]]);
    if (given?.path) act("move-directory", { dirs: [{ path: given.path, topics: [{ name: topic, partitions: [index] }] }] }, { node: id, title: `Move ${name} of broker ${id}`, button: "Move" });
  }
  const replicas = grid(`Replicas of ${name}`, ["broker", "role", "~log directory", "#size", "#behind", "action"], (id) => id, (id) => [
    link(path("brokers", id), String(id)), ...Array(4).fill(""), button("Move to another directory", null, null, { "aria-label": `Move to another directory: replica of broker ${id}` })], fill);
  view.append(
    h("section", null, h("h2", null, link("/topics", "Topics"), " / ", link(path("topics", topic), topic), ` / ${index}`), dl,
      h("div", { class: "tools acts" }, button("Move …", () => app.go(`/moves?start=${encodeURIComponent(name)}`)), button("Elect the preferred leader", () => elect(0, `Elect the preferred leader of ${name}`)),
        button("Unclean election", () => elect(1, `Unclean election of ${name}`), "danger")), note),
    section("Replicas", replicas.node), section("History", past ? [chart, past.node] : h("p", null, "This cluster does not show its metadata log.")));
  const lack = absence(view, "/topics", "All topics");

  function fill(id, [, role, , , , action]) {
    const copies = (broker) => Object.values(disks?.brokers[broker]?.log_dirs ?? []).flatMap((each) => each.replicas.map((replica) => ({ ...replica, at: each.log_dir })));
    const [now, next, lead] = [[id, false], [id, true], [row.leader_id, false]].map(([broker, is_future]) => copies(broker).find((each) => each.is_future_key === is_future));
    const words = [id === row.leader_id ? "★ leader" : row.isr_nodes.includes(id) ? "✓ in sync" : "✕ out of sync", ...Object.entries(ROLES).filter(([field]) => row[field].includes(id)).map(([, word]) => word)];
    set(role, { class: row.isr_nodes.includes(id) ? "good" : "bad" });
    action.firstChild.disabled = !now || directories(id).length < 2;
    action.firstChild.onclick = () => moveTo(id, now.at);
    return [, words.join(", "), now ? now.at + (next ? ` → ${next.at}` : "") : disks?.silent[id] ?? (disks ? "none" : "…"), disks ? bytes(now?.partition_size) : "…", id === row.leader_id ? "–" : disks ? count(now && (lead?.log_end_offset >= 0 ? Math.max(0, lead.log_end_offset - now.log_end_offset) : now.offset_lag)) : "…"];
  }
  function draw() {
    if (!row) return;
    replicas.update(row.replica_nodes);
    if (!history.length || !chart.clientWidth) return;
    const lanes = lanesOf(history), left = 80, width = chart.clientWidth, from = history[0].append_time_ms * 1000, to = Math.max(app.now() * 1000, from + 1e6);
    const times = [0.1, 0.5, 0.9].map((share) => [from + share * (to - from), (to - from > 36e8 * 24 ? moment : clock)((from + share * (to - from)) / 1000)]);
    const options = { from, to, left, width: width - left - 4, height: 18, end: to, times, look: (each) => ({ fill: `var(--c${each.about % 8})`, opacity: each.text === "leads" ? 1 : 0.45, elected: each.text === "leads", pale: each.text !== "leads" }) };
    const height = heightOf(lanes, options) + 20;
    drawLanes(drawing, lanes, options);
    set(drawing, { width, height, viewBox: `0 0 ${width} ${height}`, "aria-label": `Leader and replicas in sync over time. Now ${row.leader_id ?? "nobody"} leads, and ${ids(row.isr_nodes)} are in sync.` });
  }
  async function read() {
    try {
      const { rows: [found] } = await app.get("partitions", { topic, from: index, limit: 1 });
      lack(found ? null : `partition ${name}`);
      if (!found) return;
      const isNew = JSON.stringify(found) !== JSON.stringify(row);
      row = found;
      Object.entries({ state: "", leader: row.leader_id ?? "none", "leader epoch": row.leader_epoch, "partition epoch": row.partition_epoch, "eligible leaders": ids(row.eligible_leader_replicas), "last known eligible": ids(row.last_known_elr) }).forEach(([each, value]) => text(facts[each], value));
      facts.state.append(pills(row.states));
      text(note, "");
      draw();
      if (past && isNew) {
        known = app.get(`partitions/${encodeURIComponent(topic)}/${index}/history`);
        known.then((found) => { history = found; draw(); }, () => {});
        past.reload(!history.length);
      }
      disks = await app.get("disks", { topic, partition: index });
      draw();
    } catch (error) { if (error.isUnknown && !row) lack(`partition ${name}`); else text(note, error.message); }
  }
  const kept = follow(app, (each) => each === topic, read), resized = new ResizeObserver(draw);
  resized.observe(chart);
  read();
  return { close() { kept.close(); resized.disconnect(); }, update: kept.update };
}

export default {
  title: "Topics",
  open(view, app) {
    const [topic, index] = app.path;
    return !topic ? openAll(view, app) : index === undefined || index === "" ? openTopic(view, app, topic) : openPartition(view, app, topic, Number(index));
  },
};
