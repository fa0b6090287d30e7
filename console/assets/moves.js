// Moves: what runs with its progress and what holds it up, the queue, plans, and a form that shows before and after.
import { h, keyed, text, set, alert, button, cut, factList, field, grid, row, section, table, link, path, partitionLink, brokerLink, lastOf, sum, bytes, rate, span, count, plural, moment } from "./dom.js";
import { form } from "./actions.js";
import { curve } from "./curves.js";

const SHOWN = 200, KEPT_MS = 60_000, DIRECTORY_LIMIT = "replica.alter.log.dirs.io.max.bytes.per.second";
const EDITED = 20, UNITS = { "": 1, b: 1, kb: 1e3, mb: 1e6, gb: 1e9, tb: 1e12, kib: 2 ** 10, mib: 2 ** 20, gib: 2 ** 30, tib: 2 ** 40 };
const NEXT = {
  STARTING: "Wait: it began just now.", COPYING: "Wait, or raise the throttle.", THROTTLED: "Wait, or raise the throttle.", OUT_OF_SYNC: "Wait: the leader is about to add it to the ISR.",
  FENCED: "Bring the broker back, or choose another target.", SHUTTING_DOWN: "Bring the broker back, or choose another target.", UNREGISTERED: "Bring the broker back, or choose another target.",
  DIRECTORY_OFFLINE: "Repair the disk, then bring the directory online.", NO_LEADER: "Bring an in-sync replica back: there is no leader to copy from.", NOT_FETCHING: "Read the broker's error; it reports every second.",
};
const MOVING = ["STARTING", "COPYING", "THROTTLED", "OUT_OF_SYNC"];
const SORTS = { partition: (each) => each.name, progress: (each) => each.share, left: (each) => each.left, rate: (each) => each.rate, "time to go": (each) => each.eta, since: (each) => each.since };
const HEADS = [["partition", "partition"], ["replicas"], ["progress", "progress", "left"], ["rate", "rate"], ["time to go", "time to go", "since"], ["held up by"], ["~plan, by, reason"], ["~actions"]];

const nameOf = (each) => `${each.topic}-${each.partition_index}`;
const shareOf = (done, left) => (done === null || left === null ? null : done + left ? done / (done + left) : 1);
const total = (list, of) => sum(list.map(of));
const brokersOf = (m) => [...new Set([...m.replicas, ...m.target_replicas])];
const byName = new Intl.Collator("en", { numeric: true }).compare;
// The order of two values, unknown ones last in both directions.
const order = (a, b, sign) => (a === null || b === null ? (a === null) - (b === null) : sign * (typeof a === "string" ? byName(a, b) : a - b));

// Replace the children of a node when `key` is another.
function fresh(node, key, children) {
  if (node.known === key) return;
  node.known = key;
  node.replaceChildren(...children());
}

// Rows of both kinds: reassignments, and moves between log directories of one broker.
function rowsOf(moves) {
  const between = moves.running.map((m) => {
    const stuck = m.blockers.find((each) => !MOVING.includes(each.state)) ?? m.blockers[0];
    return { key: `${m.move_id} ${nameOf(m)}`, name: nameOf(m), topic: m.topic, index: m.partition_index, brokers: brokersOf(m), plan: m.plan_id, by: m.initiator, reason: m.reason,
      done: m.bytes_done, left: m.bytes_left, share: shareOf(m.bytes_done, m.bytes_left), rate: m.bytes_per_second, limit: m.limit, eta: m.eta_ms, since: m.started_ms || null, state: stuck?.state ?? "", stuck, move: m };
  });
  const inside = moves.between_directories.map(({ broker_id: broker, log_dir: path, replica: r, limit, eta_ms: eta }) => ({
    key: `${broker} ${nameOf(r)} ${path}`, name: nameOf(r), topic: r.topic, index: r.partition_index, brokers: [broker], plan: null, by: "", reason: "", broker, path, source: r.source_log_dir,
    done: r.partition_size, left: r.bytes_left, share: shareOf(r.partition_size, r.bytes_left), rate: r.bytes_per_second, limit, eta, since: r.started_ms, state: r.error ? "NOT_FETCHING" : "COPYING",
    stuck: { broker_id: broker, state: r.error ? "NOT_FETCHING" : "COPYING", text: r.error || "copies within the broker" } }));
  return [...between, ...inside];
}

function meter(label) {
  const node = h("div", { class: "meter", role: "progressbar", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": 100 }, h("i"));
  return h("div", null, node, h("small"));
}
function measure(box, share, words) {
  const [bar, small] = box.children, percent = share === null ? null : Math.floor(100 * share);
  bar.firstChild.style.width = `${percent ?? 0}%`;
  const said = percent === null ? words || "unknown" : `${percent} %${words ? `, ${words}` : ""}`;
  text(small, said);
  set(bar, { "aria-valuenow": percent, "aria-valuetext": said });
}

// Ask for bytes per second; null if it was given up.
async function askRate(title, present) {
  const example = { autocomplete: "off", placeholder: "10 MiB" }, wrong = ({ limit }) => (Number.isInteger(amount(limit)) ? "" : "Give bytes per second, for example 10 MiB, 512 KiB or 0.");
  const given = await form(title, [["limit", "Bytes per second into each broker; 0 lifts the throttle", present || "", example]], { go: "See what this does", wrong });
  return given && amount(given.limit);
}

function topicsOf(moves, partition) {
  const topics = new Map();
  for (const each of moves) topics.set(each.topic, [...(topics.get(each.topic) ?? []), { partition_index: each.partition_index, ...partition(each) }]);
  return [...topics].map(([name, partitions]) => ({ name, partitions }));
}

// -- the form that starts moves: replicas by broker, options, and what would change before it does ---------------------

// Return the bytes of "10 MiB", "512 kB/s" or "0"; NaN for another text.
function amount(words) {
  const found = /^\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*?)(?:\/s)?\s*$/i.exec(words), unit = found && UNITS[found[2].toLowerCase()];
  return unit ? Math.round(Number(found[1]) * unit) : NaN;
}

// Replicas before and after: "− 2" leaves, "+ 3" comes, and the words say it too.
function replicas(from, to) {
  const chip = (id, kind, sign = "") => h("span", { class: `rep ${kind}` }, sign, String(id));
  const adding = to.filter((id) => !from.includes(id)), removing = from.filter((id) => !to.includes(id));
  const said = [adding.length && `adding ${adding.join(", ")}`, removing.length && `removing ${removing.join(", ")}`].filter(Boolean).join("; ");
  return h("div", null, h("span", { class: "reps" }, from.map((id) => (to.includes(id) ? chip(id, "") : chip(id, "gone", "− "))), " → ", to.map((id) => (from.includes(id) ? chip(id, "") : chip(id, "new", "+ ")))), h("small", { class: "below" }, `${said || (String(from) === String(to) ? "no change" : "another order")}`));
}

const named = (each) => `${each.topic}-${each.partition}`;

// Return [{topic, partition, replicas?, log_dirs?}] of "orders-3, orders-5" or of the JSON of reassign-partitions. Error.
function parsed(words) {
  if (words.trim().startsWith("{")) {
    const file = JSON.parse(words), list = (file.proposed ?? file).partitions;
    if (!Array.isArray(list) || !list.length) throw new Error("The plan has no partitions; give {\"partitions\":[{\"topic\":\"orders\",\"partition\":3,\"replicas\":[1,2]}]}.");
    return list;
  }
  return words.split(/[,\s]+/).filter(Boolean).map((name) => {
    const at = name.lastIndexOf("-"), partition = Number(name.slice(at + 1));
    if (at < 1 || !/^[0-9]+$/.test(name.slice(at + 1))) throw new Error(`${name} is not TOPIC-PARTITION, for example orders-3.`);
    return { topic: name.slice(0, at), partition };
  });
}

// Fill `box` with the form; `done(url)` is called at its end, with null if it was given up.
function startForm(box, app, done) {
  const kafka = app.about.speaks_kafka === true, first = app.query.get("start") ?? "";
  const names = h("textarea", { rows: 2, value: first === "?" ? "" : first, placeholder: "orders-3, orders-5   or   {\"partitions\":[{\"topic\":\"orders\",\"partition\":3,\"replicas\":[1,2]}]}" });
  const input = (label, attributes = {}) => {
    const node = h("input", { autocomplete: "off", ...attributes }), isBox = attributes.type === "checkbox";
    return [node, h("label", { class: isBox && "tick" }, isBox ? [node, label] : [label, node])];
  };
  const [throttle, throttleLabel] = input("throttle into each broker, ends with the move", { placeholder: "10 MiB" }), [planId, planLabel] = input("plan name, for a rollback"), [reason, reasonLabel] = input("reason");
  const [priority, priorityLabel] = input("priority", { type: "number", value: "0" }), [queued, queuedLabel] = input("wait in the queue for free slots", { type: "checkbox" });
  const [factorTopic, factorTopicLabel] = input("topic"), [factor, factorLabel] = input("replicas of each partition", { type: "number", min: "1", value: "3" });
  const wrong = alert(), rows = h("div"), rest = h("p"), preview = h("div", { "aria-live": "polite" });
  const act = (words, work, kind = null) => button(words, () => attempt(work), kind, { type: "button" });
  let plan = [], disks = {};
  box.append(section("Start a move",
    h("form", { onsubmit: (event) => { event.preventDefault(); attempt(load); } }, h("label", null, "Partitions, or a plan as reassign-partitions --execute reads it", names), h("div", { class: "tools" }, button("Choose replicas"), act("Close", () => done(null)))),
    rows, rest, h("div", { class: "filters" }, kafka ? h("p", null, "Apache Kafka has no queue, plans, reasons and throttles of single moves.") : [throttleLabel, queuedLabel, priorityLabel, planLabel, reasonLabel]), h("div", { class: "tools" }, act("Show before and after", show), act("Start", begin, "primary")), wrong, preview,
    h("details", null, h("summary", null, "Change the replication factor of a topic"), h("div", { class: "filters" }, factorTopicLabel, factorLabel, act("Change the factor", changeFactor), h("p", null, "The cluster chooses the brokers; throttle, queue and plan of above count.")))));

  async function attempt(work) {
    text(wrong, "");
    try { await work(); } catch (error) { text(wrong, error.message); }
  }
  const brokers = () => app.state.brokers?.brokers ?? [];
  const dirsOf = (id) => app.state.disks?.brokers[id]?.log_dirs ?? [];
  const free = (id) => { const known = dirsOf(id).filter((dir) => dir.usable_bytes !== null); return known.length ? `${bytes(Math.max(...known.map((dir) => dir.usable_bytes)))} free` : "disks unknown"; };

  async function load() {
    const wanted = parsed(names.value), topics = [...new Set(wanted.map((each) => each.topic))], found = new Map();
    if (!wanted.length) throw new Error("Name partitions, for example orders-3, or paste a plan.");
    disks = {};
    for (const topic of topics) {
      for (let from = 0, most = 1; from < most; from += 500) {
        const page = await app.get("partitions", { topic, from, limit: 500 });
        most = page.total;
        for (const each of page.rows) found.set(`${topic}-${each.partition_index}`, each);
      }
      disks[topic] = (await app.get("disks", { topic })).brokers;
    }
    plan = wanted.map((each) => {
      const is = found.get(named(each));
      if (!is) throw new Error(`There is no partition ${named(each)}.`);
      return { ...each, is, to: each.replicas ?? (is.target_replicas.length ? is.target_replicas : is.replica_nodes) };
    });
    app.setQuery({ start: names.value.trim().startsWith("{") ? "?" : names.value.trim() || "?" });
    preview.replaceChildren();
    draw();
  }

  function draw() {
    keyed(rows, plan.slice(0, EDITED), (each) => `${named(each)} ${each.is.partition_epoch}`, (each) => {
      const typed = h("input", { "aria-label": `Replicas of ${named(each)}, the preferred leader first`, oninput: () => { const ids = typed.value.split(/[,\s]+/).filter(Boolean).map(Number); rowPlan(each).to = ids; tick(); } });
      const boxes = brokers().map((broker) => { const id = broker.broker_id, box_ = h("input", { type: "checkbox", onchange: () => { const one = rowPlan(each); one.to = box_.checked ? [...one.to, id] : one.to.filter((other) => other !== id); typed.value = one.to.join(", "); tick(); } }), place = h("b");
        return { id, box: box_, place, node: h("label", null, box_, ` broker ${id} `, place, h("small", null, [broker.rack, free(id), broker.is_fenced && "✕ fenced"].filter(Boolean).join(", "))) }; });
      const tick = () => boxes.forEach((one) => { const at = rowPlan(each).to.indexOf(one.id); one.box.checked = at >= 0; text(one.place, at < 0 ? "" : at ? `${at + 1}. ` : "1. preferred leader "); });
      typed.value = each.to.join(", ");
      tick();
      return h("fieldset", null, h("legend", null, `${named(each)}, now [${each.is.replica_nodes.join(", ")}], epoch ${each.is.partition_epoch}`), typed, boxes.map((one) => one.node));
    });
    text(rest, plan.length > EDITED ? `${plural(plan.length - EDITED, "more partition goes", "more partitions go")} as the plan says.` : "");
  }
  const rowPlan = (each) => plan.find((one) => named(one) === named(each)) ?? each;

  function options() {
    const limit = throttle.value.trim() ? amount(throttle.value) : null;
    if (Number.isNaN(limit)) throw new Error(`${throttle.value} is no rate; give bytes per second, for example 10 MB.`);
    const given = { queued: queued.checked, priority: queued.checked ? Number(priority.value) : 0, throttle: limit, plan_id: planId.value.trim(), reason: reason.value.trim() };
    return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== "" && value !== null && value !== false && value !== 0 || value === limit && limit === 0));
  }
  function request() {
    if (!plan.length) throw new Error("Choose partitions first.");
    const odd = plan.find((each) => !each.to.length || !each.to.every(Number.isInteger));
    if (odd) throw new Error(`${named(odd)} needs replicas: broker ids, the preferred leader first.`);
    const topics = new Map();
    for (const each of plan) topics.set(each.topic, [...(topics.get(each.topic) ?? []), { partition_index: each.partition, replicas: { values: each.to }, ...(kafka ? {} : { expected_partition_epoch: each.is.partition_epoch }) }]);
    return { topics: [...topics].map(([name, partitions]) => ({ name, partitions })), ...options() };
  }

  const logDirs = () => Object.fromEntries(plan.filter((each) => each.log_dirs && each.log_dirs.length === each.to.length).map((each) => [named(each), each.log_dirs]));

  // Replicas and bytes by place, "1" for a broker and "1 /data/d0" for a directory, before and after.
  function changes() {
    const places = new Map(), put = (key, way, size) => { const at = places.get(key) ?? { before: [0, 0], after: [0, 0] }; at[way][0]++; at[way][1] += size; places.set(key, at); };
    const moved = plan.map((each) => {
      const logs = Object.entries(disks[each.topic]).flatMap(([id, broker]) => broker.log_dirs.flatMap((dir) => dir.replicas.filter((one) => one.partition_index === each.partition && !one.is_future_key).map((one) => [Number(id), dir.log_dir, one.partition_size])));
      const size = Math.max(0, ...logs.map(([, , bytes_]) => bytes_));
      for (const [id, path, bytes_] of logs) for (const key of [`${id}`, `${id} ${path}`]) put(key, "before", bytes_);
      each.to.forEach((id, at) => {
        const log = logs.find(([other]) => other === id), named = each.log_dirs?.[at] === "any" ? null : each.log_dirs?.[at];
        for (const key of [`${id}`, `${id} ${named ?? log?.[1] ?? "a directory that the broker chooses"}`]) put(key, "after", log?.[2] ?? size);
      });
      return { each, size, copied: size * each.to.filter((id) => !logs.some(([other]) => other === id)).length };
    });
    return { moved, places: [...places].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true })) };
  }
  async function show() {
    const asked = request(), { moved, places } = changes(), pair = (was, is) => (was === is ? was : `${was} → ${is}`);
    const answer = h("p", null, "Asking the cluster …"), MOVES = ["partition", "replicas", "#size", "#to copy"], PLACES = ["broker, directory", "#replicas", "#bytes", "#free now"];
    const partitions = table("Partitions before and after", MOVES, h("tbody", null, moved.slice(0, 200).map(({ each, size, copied }) => row(MOVES, [named(each), replicas(each.is.replica_nodes, each.to), bytes(size), bytes(copied)]))));
    const where = table("Brokers and directories before and after", PLACES, h("tbody", null, places.map(([key, { before, after }]) => {
      const [id, ...rest] = key.split(" "), path = rest.join(" "), usable = dirsOf(id).find((dir) => dir.log_dir === path)?.usable_bytes;
      const made = row(PLACES, [path || `broker ${id}`, pair(count(before[0]), count(after[0])), pair(bytes(before[1]), bytes(after[1])), path ? (usable === undefined ? "–" : bytes(usable)) : free(id).replace(" free", "")]);
      if (path) made.firstChild.className = "wrap inner-row";
      return made;
    })));
    const copied = moved.reduce((sum, one) => sum + one.copied, 0);
    preview.replaceChildren(h("h3", null, `${plural(moved.length, "partition")}, ${bytes(copied)} to copy`), partitions, h("h3", null, "Their replicas and bytes by broker and directory"), where, h("h3", null, "What the cluster says"), answer);
    if (kafka) return text(answer, "Apache Kafka cannot check a move without starting it.");
    try {
      const { words } = await app.post("actions/reassign", { request: asked, preview: true, log_dirs: logDirs() });
      text(answer, `✓ It would do this: ${words.slice(0, 5).join("; ")}${words.length > 5 ? "; …" : ""}.`).className = "good";
    } catch (error) {
      text(answer, `✕ ${error.message}`).className = "bad";
      if (/INVALID_UPDATE_VERSION/.test(error.message)) answer.append(" ", act("Read the partitions again", load));
    }
  }
  const finished = (id) => done(path("moves", ...(id ? [id] : [])));
  async function begin() {
    const asked = request(), title = plan.length === 1 ? `Move ${named(plan[0])}` : `Move ${plural(plan.length, "partition")}`;
    if (await app.act("reassign", asked, { title, button: "Start", log_dirs: logDirs() })) finished(asked.plan_id);
  }
  async function changeFactor() {
    const { throttle: limit, queued: waits, plan_id } = options(), name = factorTopic.value.trim();
    if (await app.act("replication-factor", { topics: [{ name, replication_factor: Number(factor.value) }], throttle: limit, queued: waits, plan_id }, { title: `Replication factor of ${name}`, button: "Change" })) finished(plan_id);
  }
  if (names.value.trim()) attempt(load); else names.focus();
}

// -- the page ---------------------------------------------------------------------------------------------------------

export default {
  title: "Moves",
  open(view, app) {
    const plan = app.path[0] ?? null, kafka = app.about.speaks_kafka === true;
    const filter = (name) => (name === "plan" && plan !== null ? plan : app.query.get(name) ?? "");
    const holds = (each) => each.topic.includes(filter("topic")) && (!filter("broker") || each.brokers.includes(Number(filter("broker")))) && (!filter("plan") || each.plan === filter("plan")) && (!filter("state") || each.state === filter("state"));
    const queuedRow = (each) => ({ ...each, plan: each.plan_id, brokers: brokersOf(each), state: "QUEUED" });
    const hasFilter = () => ["topic", "broker", "plan", "state"].some(filter);
    let newest = 0, drawn = null, before = null;
    const ended = new Map();

    // -- what a person does ---------------------------------------------------------------------------------------------
    const running = () => rowsOf(app.state.moves).filter(holds);
    const waiting = () => app.state.moves.queued.map(queuedRow).filter(holds);
    const cancelled = (moves) => ({ topics: topicsOf(moves, (each) => ({ expected_replicas: { values: each.replicas } })) });
    function cancel(rows, queued = []) {
      if (rows.length === 1 && rows[0].path) return moveBack(rows[0]);
      const moves = [...rows.filter((each) => each.move).map((each) => each.move), ...queued];
      const what = moves.length === 1 ? `the move of ${nameOf(moves[0])}` : plural(moves.length, "move");
      return moves.length && app.act("reassign", cancelled(moves), { title: `Cancel ${what}`, button: "Cancel the move" });
    }
    const cancelAll = () => (hasFilter() || kafka ? cancel(running(), waiting()) : app.act("cancel-all", {}, { title: "Cancel every move", button: "Cancel all moves" }));
    const inDirectory = (each, path) => ({ dirs: [{ path, topics: [{ name: each.topic, partitions: [each.index] }] }] });
    const moveBack = (each) => app.act("move-directory", inDirectory(each, each.source), { node: each.broker, title: `Cancel the move of ${each.name} on broker ${each.broker}`, button: "Cancel the move" });
    async function throttle(rows) {
      const moves = rows.filter((each) => each.move).map((each) => each.move), inside = rows.find((each) => each.path);
      const title = moves.length === 1 ? `Throttle of ${nameOf(moves[0])}` : moves.length ? `Throttle of ${plural(moves.length, "move")}` : `Throttle of moves within broker ${inside?.broker}`;
      const limit = moves.length || inside ? await askRate(title, moves[0] ? moves[0].throttle : inside.limit) : null;
      if (limit === null) return;
      const config = { name: DIRECTORY_LIMIT, config_operation: limit ? 0 : 1, ...(limit ? { value: String(limit) } : {}) };
      if (!moves.length) app.act("configure", { resources: [{ resource_type: 4, resource_name: String(inside.broker), configs: [config] }] }, { title });
      else app.act("reassign", { topics: topicsOf(moves, (each) => ({ replicas: { values: each.target_replicas } })), throttle: limit }, { title, button: limit ? "Throttle" : "Lift the throttle" });
    }

    // -- the frame ------------------------------------------------------------------------------------------------------
    const [dl, facts] = factList(["running", "between directories", "queued", "bytes per second", "bytes left", "last one ends in"]);
    const note = h("p", { class: "note" }), none = h("p"), planBox = h("div"), flows = h("div", { class: "flows", role: "group", "aria-label": "No bytes move" }), curveBox = h("div"), formBox = h("div");
    const fields = Object.fromEntries(["topic", "broker", "plan", "state"].filter((name) => name !== "plan" || plan === null)
      .map((name) => [name, name === "topic" ? field(app, name, name, redraw, null, { "data-filter": true }) : field(app, name, name, redraw, [["", "any"]])]));
    const throttleButton = button("", () => throttle(running().filter((each) => each.move))), cancelButton = button("", cancelAll, "danger");
    const start = button("Start a move", () => { app.setQuery({ start: "?" }); openForm(); }, "primary");
    const sort = () => app.query.get("sort") ?? "";
    const sorter = (key) => button(key, () => { app.setQuery({ sort: sort() === key ? `-${key}` : sort() === `-${key}` ? null : key }); redraw(); }, "sort", { "data-key": key });
    const more = cut(SHOWN, redraw), waitingMore = cut(SHOWN, redraw);
    const actions = (each) => [button("Throttle", () => throttle([rowOf(each.key) ?? each])), button("Cancel", () => cancel([rowOf(each.key) ?? each]), "danger"), link(`/events?about=${encodeURIComponent(each.name)}`, "Events")];
    const list = grid("Running moves", HEADS.map(([name]) => name), (each) => each.key, (each) => [linkOf(each),
      each.move ? replicas(each.move.original_replicas.length ? each.move.original_replicas : each.move.replicas, each.move.target_replicas)
        : h("span", { class: "wrap" }, brokerLink(each.broker), `: ${lastOf(each.source)} → ${lastOf(each.path)}`),
      h("div", null, meter(each.name), each.move?.adding_replicas.length ? h("details", null, h("summary", null, "Replica by replica"), h("ul", { class: "plain" })) : ""),
      ...[1, 2].map(() => h("div", null, h("div"), h("small"))), "", "", actions(each)], fill);
    const heads = [...list.node.querySelectorAll("th")];
    HEADS.forEach(([, ...keys], at) => { if (keys.length) heads[at].replaceChildren(...keys.flatMap((key, place) => [place ? ", " : "", sorter(key)])); });
    const queue = grid("Queue", ["#place", "partition", "replicas", "#size", "~waits for", "#priority", "~plan, by, reason", "actions"], (each) => each.move_id + nameOf(each),
      (each) => ["", linkOf(each), replicas(each.replicas, each.target_replicas), "", "", "", "", button("Cancel", () => cancel([], [each]), "danger")], (each, cells) => {
        by(cells[6], each.plan_id, each.initiator, each.reason);
        return [String(each.position), , , bytes(each.size_bytes), each.waits_for, String(each.priority)];
      });
    const rollBack = (id) => app.act("roll-back", { rollback_plan_id: id }, { title: `Roll plan ${id} back`, button: "Roll back" });
    const forget = (id) => app.act("forget-plan", { plan_ids: [id] }, { title: `Forget plan ${id}`, button: "Forget" });
    const plans = grid("Plans", ["plan", "made", "~by, reason", "#partitions", "#running", "#queued", "actions"], (each) => each.plan_id, (each) => [
      link(path("moves", each.plan_id), each.plan_id), [moment(each.created_ms), h("small", { class: "below" })], "", "", "", "",
      [button("Roll back", () => rollBack(each.plan_id)), button("Forget", () => forget(each.plan_id))]], (each, cells) => {
      by(cells[2], null, each.initiator, each.reason);
      text(cells[1].lastChild, each.running || each.queued ? "" : "nothing of it moves now");
      return [, , , count(each.partitions), count(each.running), count(each.queued)];
    });
    const queueSection = section("Queue", queue.node, waitingMore.node), plansSection = section("Plans that can be rolled back", plans.node);
    view.append(
      h("section", null, planBox, dl, note, h("div", { class: "pair" }, curveBox, h("div", null, h("h2", null, "Bytes per second by broker"), flows))),
      formBox,
      section("Running", h("div", { class: "filters" }, Object.values(fields), start, throttleButton, cancelButton), none, list.node, more.node),
      queueSection, plansSection);
    const growth = kafka ? null : curve(curveBox, { title: "Bytes moved", unit: "bytes per second", seconds: 300, series: [{ label: "between brokers", colour: "c0" }, { label: "between directories", colour: "c1" }] });
    const openForm = () => { formBox.replaceChildren(); startForm(formBox, app, (to) => { app.setQuery({ start: null }); formBox.replaceChildren(); if (to) app.go(to); }); };
    if (app.query.has("start")) openForm();

    // -- rows ------------------------------------------------------------------------------------------------------------
    const by = (node, plan_, initiator, reason) => fresh(node, JSON.stringify([plan_, initiator, reason]),
      () => [h("span", null, plan_ ? [link(path("moves", plan_), plan_), " "] : "", initiator, reason ? h("small", null, ` ${reason}`) : "")]);
    const linkOf = (each) => partitionLink(each.topic, each.index ?? each.partition_index);
    const rowOf = (key) => rowsOf(app.state.moves).find((each) => each.key === key);

    function fill(each, [, , progress, speed, eta, held, origin, acts], row) {
      const over = each.ended;
      row.classList.toggle("over", Boolean(over));
      measure(progress.firstChild.firstChild, over?.done ? 1 : each.share, over ? over.words : each.share === null ? (kafka ? "not known of Apache Kafka" : "not known yet") : `${bytes(each.done)} of ${bytes(each.done + each.left)}, ${bytes(each.left)} left`);
      text(speed.firstChild.firstChild, over ? "–" : each.rate === null ? "nothing is copied" : rate(each.rate));
      text(speed.firstChild.lastChild, over ? "" : each.limit === null ? "no limit" : `limit ${rate(each.limit)}`);
      text(eta.firstChild.firstChild, over || each.eta === null ? "–" : each.eta === 0 ? "now" : span(each.eta));
      text(eta.firstChild.lastChild, each.since === null ? "" : over ? `took ${span(over.at - each.since)}` : `since ${span(app.now() - each.since)}`);
      by(origin, each.plan, each.by, each.reason);
      fresh(held, over ? "" : `${each.stuck?.broker_id} ${each.stuck?.text} ${each.state}`, () => [over || !each.stuck ? "–" : blocked(each)]);
      for (const button of acts.querySelectorAll("button")) button.hidden = Boolean(over);
      const list = progress.querySelector("ul");
      if (list?.parentNode.open && !over) keyed(list, each.move.adding_replicas, (id) => id, (id) => h("li", null, brokerLink(id), meter(`${each.name} on broker ${id}`)), (item, id) => {
        const found = each.move.progress.find((one) => one.broker_id === id), why = each.move.blockers.find((one) => one.broker_id === id);
        measure(item.lastChild, found ? shareOf(found.bytes_done, found.bytes_left) : why ? null : 1, found ? [`${bytes(found.bytes_left)} left`, found.bytes_per_second === null ? why?.text : rate(found.bytes_per_second), found.eta_ms ? `${span(found.eta_ms)} to go` : ""].filter(Boolean).join(", ") : why ? why.text : "in sync");
      });
    }
    function blocked(each) {
      const { broker_id: id, state, text: why } = each.stuck, isMoving = MOVING.includes(state);
      const where = state === "NO_LEADER" ? linkOf(each) : brokerLink(id), [lead, ...rest] = why.split(`broker ${id}`);
      return h("div", { class: "wrap" }, h("span", { class: isMoving ? "" : "bad" }, isMoving ? "… " : "✕ ", state.toLowerCase().replaceAll("_", " "), ": "), rest.length ? [lead, where, rest.join(`broker ${id}`)] : [where, ` ${why}`], h("small", null, `. ${NEXT[state] ?? ""}`));
    }

    // Moves that ended while this page was open stay a minute, with the word of the cluster on how they ended.
    async function notice(rows) {
      const now = app.now(), present = new Set(rows.map((each) => each.key));
      for (const each of (before ?? []).filter((row) => !present.has(row.key))) ended.set(each.key, { ...each, ended: { at: now, words: "ended", done: false } });
      const gone = [...ended.values()].filter((each) => each.ended.at === now && each.move);
      before = rows;
      for (const [key, each] of ended) if (now - each.ended.at > KEPT_MS || present.has(key)) ended.delete(key);
      for (const topic of new Set(gone.map((each) => each.topic))) {
        const found = (await app.get("partitions", { topic, limit: 500 }).catch(() => ({ rows: [] }))).rows;
        for (const each of gone.filter((row) => row.topic === topic)) {
          const is = found.find((row) => row.partition_index === each.index);
          if (is) each.ended = { ...each.ended, done: String(is.replica_nodes) === String(each.move.target_replicas), words: String(is.replica_nodes) === String(each.move.target_replicas) ? "✓ moved" : `✕ not moved, replicas [${is.replica_nodes.join(", ")}]` };
        }
      }
    }

    function sorted(rows) {
      const key = sort().replace(/^-/, ""), of = SORTS[key] ?? SORTS.partition, sign = sort().startsWith("-") ? -1 : 1;
      heads.forEach((head, at) => set(head, { "aria-sort": HEADS[at].indexOf(key) > 0 ? (sign < 0 ? "descending" : "ascending") : null }));
      for (const node of view.querySelectorAll(".sort")) text(node, node.dataset.key + (node.dataset.key === key ? (sign < 0 ? " ▼" : " ▲") : ""));
      return rows.toSorted((a, b) => order(of(a), of(b), sign) || byName(a.name, b.name));
    }

    function drawFlows(rows) {
      const sums = new Map((app.state.brokers?.brokers ?? []).map((each) => [each.broker_id, { in: 0, out: 0 }]));
      const add = (id, way, value) => { if (id !== null && id !== undefined && value) { const sum = sums.get(id) ?? { in: 0, out: 0 }; sum[way] += value; sums.set(id, sum); } };
      for (const { move } of rows) for (const each of move?.progress ?? []) { add(each.broker_id, "in", each.bytes_per_second); add(move.leader_id, "out", each.bytes_per_second); }
      const list = [...sums].sort(([a], [b]) => a - b), most = Math.max(1, ...list.flatMap(([, sum]) => [sum.in, sum.out]));
      keyed(flows, list, ([id]) => id, ([id]) => h("div", null, h("small"), h("i", { class: "out" }), brokerLink(id), h("i", { class: "in" }), h("small")), (node, [, sum]) => {
        const [out, outBar, , inBar, into] = node.children;
        text(out, `out ${rate(sum.out)}`); text(into, `in ${rate(sum.in)}`);
        outBar.style.setProperty("--share", sum.out / most); inBar.style.setProperty("--share", sum.in / most);
      });
      set(flows, { "aria-label": list.map(([id, sum]) => `broker ${id}: ${rate(sum.in)} in, ${rate(sum.out)} out`).join("; ") || "No brokers are known" });
    }

    function redraw() {
      const moves = app.state.moves, fault = app.parts.moves?.fault;
      none.hidden = false;
      if (!moves) { text(none, fault ? `The cluster has not told its moves: ${fault}` : "Asking the cluster …"); return; }
      const rows = rowsOf(moves), brokers = new Set([...(app.state.brokers?.brokers ?? []).map((each) => each.broker_id), ...[...rows, ...moves.queued.map(queuedRow)].flatMap((each) => each.brokers)]);
      if (app.parts.moves !== drawn) { drawn = app.parts.moves; notice(rows); }
      const all = rows.filter(holds), here = sorted([...all, ...[...ended.values()].filter(holds)]), queued = waiting();
      const known = moves.plans.filter((each) => plan === null || each.plan_id === plan);
      const chosen = { broker: [...brokers].sort((a, b) => a - b), plan: [...rows, ...moves.queued.map(queuedRow)].map((each) => each.plan), state: rows.map((each) => each.state) };
      for (const [name, values] of Object.entries(chosen)) fields[name]?.offer([["", "any"], ...new Set(values.filter((value) => value !== null && value !== ""))]);
      list.update(more.of(here));
      text(none, here.length ? "" : rows.length ? "No running move matches the filters." : "Nothing moves.").hidden = here.length > 0;
      list.node.hidden = !here.length;
      const etas = all.map((each) => each.eta), inside = all.filter((each) => each.path);
      text(facts.running, count(all.length - inside.length)); text(facts["between directories"], count(inside.length)); text(facts.queued, count(queued.length));
      text(facts["bytes per second"], rate(total(all, (each) => each.rate))); text(facts["bytes left"], all.some((each) => each.left === null) ? `${bytes(total(all, (each) => each.left))}, and moves of unknown size` : bytes(total(all, (each) => each.left)));
      text(facts["last one ends in"], !all.length ? "–" : etas.includes(null) ? (all.every((each) => MOVING.includes(each.state)) ? "unknown" : "unknown: a move is held up") : span(Math.max(...etas)));
      text(note, kafka ? "Apache Kafka does not tell the progress, limits, time to go and blockers of moves, and has no queue and no plans." : fault ? `Not renewed: ${fault}` : moves.has_progress ? "" : "The active controller, which alone knows the progress, does not answer.");
      const between = all.length - inside.length;
      text(throttleButton, hasFilter() ? `Throttle ${between} shown` : "Throttle all"); text(cancelButton, hasFilter() ? `Cancel ${between + queued.length} shown` : "Cancel all");
      throttleButton.disabled = !between || kafka; cancelButton.disabled = !between && !queued.length;
      drawFlows(all);
      queue.update(waitingMore.of(queued));
      plans.update(known);
      queueSection.hidden = !queued.length;
      plansSection.hidden = !known.length;
      if (plan !== null) fresh(planBox, known.length, () => [h("h2", null, `Plan ${plan} `), h("p", null, known.length ? "Partitions of the plan that are not listed here have no move now. " : "It is not among the plans that can be rolled back. ", link("/moves", "All moves"))]);
      const at = app.parts.moves.as_of_ms;
      if (growth && at !== newest) growth.push(at, [total(rows, (each) => (each.move ? each.rate : 0)), total(rows, (each) => (each.path ? each.rate : 0))]);
      newest = at;
    }
    return { update() { if (!app.state.moves || app.parts.moves.as_of_ms !== newest) redraw(); }, close() { growth?.destroy(); } };
  },
};
