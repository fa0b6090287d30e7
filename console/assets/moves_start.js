// The form that starts moves: replicas by broker, options, and what would change before it does.
import { h, keyed, text, alert, button, path, row, section, table, bytes, count, plural } from "./dom.js";

const EDITED = 20, UNITS = { "": 1, b: 1, kb: 1e3, mb: 1e6, gb: 1e9, tb: 1e12, kib: 2 ** 10, mib: 2 ** 20, gib: 2 ** 30, tib: 2 ** 40 };

// Return the bytes of "10 MiB", "512 kB/s" or "0"; NaN for another text.
export function amount(words) {
  const found = /^\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*?)(?:\/s)?\s*$/i.exec(words), unit = found && UNITS[found[2].toLowerCase()];
  return unit ? Math.round(Number(found[1]) * unit) : NaN;
}

// Replicas before and after: "− 2" leaves, "+ 3" comes, and the words say it too.
export function replicas(from, to) {
  const chip = (id, kind, sign = "") => h("span", { class: `rep ${kind}` }, sign, kind === "gone" ? h("s", null, String(id)) : String(id));
  const adding = to.filter((id) => !from.includes(id)), removing = from.filter((id) => !to.includes(id));
  const said = [adding.length && `adding ${adding.join(", ")}`, removing.length && `removing ${removing.join(", ")}`].filter(Boolean).join("; ");
  return h("div", null, h("span", { class: "reps" }, from.map((id) => (to.includes(id) ? chip(id, "") : chip(id, "gone", "− "))), " → ", to.map((id) => (from.includes(id) ? chip(id, "") : chip(id, "new", "+ ")))), h("small", { class: "below" }, `${said || (String(from) === String(to) ? "no change" : "another order")}`));
}

const nameOf = (each) => `${each.topic}-${each.partition}`;

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
export function startForm(box, app, done) {
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
      const is = found.get(nameOf(each));
      if (!is) throw new Error(`There is no partition ${nameOf(each)}.`);
      return { ...each, is, to: each.replicas ?? (is.target_replicas.length ? is.target_replicas : is.replica_nodes) };
    });
    app.setQuery({ start: names.value.trim().startsWith("{") ? "?" : names.value.trim() || "?" });
    preview.replaceChildren();
    draw();
  }

  function draw() {
    keyed(rows, plan.slice(0, EDITED), (each) => `${nameOf(each)} ${each.is.partition_epoch}`, (each) => {
      const typed = h("input", { "aria-label": `Replicas of ${nameOf(each)}, the preferred leader first`, oninput: () => { const ids = typed.value.split(/[,\s]+/).filter(Boolean).map(Number); rowPlan(each).to = ids; tick(); } });
      const boxes = brokers().map((broker) => { const id = broker.broker_id, box_ = h("input", { type: "checkbox", onchange: () => { const one = rowPlan(each); one.to = box_.checked ? [...one.to, id] : one.to.filter((other) => other !== id); typed.value = one.to.join(", "); tick(); } }), place = h("b");
        return { id, box: box_, place, node: h("label", null, box_, ` broker ${id} `, place, h("small", null, [broker.rack, free(id), broker.is_fenced && "✕ fenced"].filter(Boolean).join(", "))) }; });
      const tick = () => boxes.forEach((one) => { const at = rowPlan(each).to.indexOf(one.id); one.box.checked = at >= 0; text(one.place, at < 0 ? "" : at ? `${at + 1}. ` : "1. preferred leader "); });
      typed.value = each.to.join(", ");
      tick();
      return h("fieldset", null, h("legend", null, `${nameOf(each)}, now [${each.is.replica_nodes.join(", ")}], epoch ${each.is.partition_epoch}`), typed, boxes.map((one) => one.node));
    });
    text(rest, plan.length > EDITED ? `${plural(plan.length - EDITED, "more partition goes", "more partitions go")} as the plan says.` : "");
  }
  const rowPlan = (each) => plan.find((one) => nameOf(one) === nameOf(each)) ?? each;

  function options() {
    const limit = throttle.value.trim() ? amount(throttle.value) : null;
    if (Number.isNaN(limit)) throw new Error(`${throttle.value} is no rate; give bytes per second, for example 10 MB.`);
    const given = { queued: queued.checked, priority: queued.checked ? Number(priority.value) : 0, throttle: limit, plan_id: planId.value.trim(), reason: reason.value.trim() };
    return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== "" && value !== null && value !== false && value !== 0 || value === limit && limit === 0));
  }
  function request() {
    if (!plan.length) throw new Error("Choose partitions first.");
    const odd = plan.find((each) => !each.to.length || !each.to.every(Number.isInteger));
    if (odd) throw new Error(`${nameOf(odd)} needs replicas: broker ids, the preferred leader first.`);
    const topics = new Map();
    for (const each of plan) topics.set(each.topic, [...(topics.get(each.topic) ?? []), { partition_index: each.partition, replicas: { values: each.to }, ...(kafka ? {} : { expected_partition_epoch: each.is.partition_epoch }) }]);
    return { topics: [...topics].map(([name, partitions]) => ({ name, partitions })), ...options() };
  }

  const logDirs = () => Object.fromEntries(plan.filter((each) => each.log_dirs && each.log_dirs.length === each.to.length).map((each) => [nameOf(each), each.log_dirs]));

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
    const partitions = table("Partitions before and after", MOVES, h("tbody", null, moved.slice(0, 200).map(({ each, size, copied }) => row(MOVES, [nameOf(each), replicas(each.is.replica_nodes, each.to), bytes(size), bytes(copied)]))));
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
    const asked = request(), title = plan.length === 1 ? `Move ${nameOf(plan[0])}` : `Move ${plural(plan.length, "partition")}`;
    if (await app.act("reassign", asked, { title, button: "Start", log_dirs: logDirs() })) finished(asked.plan_id);
  }
  async function changeFactor() {
    const { throttle: limit, queued: waits, plan_id } = options(), name = factorTopic.value.trim();
    if (await app.act("replication-factor", { topics: [{ name, replication_factor: Number(factor.value) }], throttle: limit, queued: waits, plan_id }, { title: `Replication factor of ${name}`, button: "Change" })) finished(plan_id);
  }
  if (names.value.trim()) attempt(load); else names.focus();
}
