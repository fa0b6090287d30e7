// The quorum: who leads, who follows how far behind, the last minutes as lanes and curves, and one election on demand.
import { h, keyed, text, set, button, factList, grid, section, count, plural, span, link } from "./dom.js";
import { curve } from "./curves.js";
import { elections } from "./elections.js";
import { faultBands, lanes } from "./live_lanes.js";

const SPANS = [[60, "1 min"], [300, "5 min"], [900, "15 min"]];

export default {
  title: "Quorum",
  open(view, app) {
    const seconds = () => Number(app.query.get("last")) || 300;
    const [dl, facts] = factList(["leader", "epoch", "high watermark", "voters", "log start", "cluster id"]);
    const findings = h("ul", { class: "plain" }), progress = h("p", { class: "progress", hidden: true });
    const held = elections(app);
    const picture = lanes(app, seconds, held.show);
    const spans = SPANS.map(([value, name]) => button(name, () => { app.setQuery({ last: value === 300 ? null : value }); curves.forEach(([drawn]) => drawn.destroy()); curves = []; started = false; update(); }));
    const nodes = grid("Voters and observers", ["node", "role", "state", "#log end", "#behind", "#last fetch", "actions", "directory id", "~endpoint"],
      (each) => `${each.replica_id} ${each.role === "observer"}`, (each) => [String(each.replica_id), "", "", "", "", "", actions(each)], fill);
    const curveBox = h("div", { class: "pair" });
    let curves = [];

    view.append(
      h("section", null, dl, progress, findings),
      section("Who follows whom", h("div", { class: "tools" }, h("span", { class: "legend choice" }, spans), h("span", { class: "note" }, "Each row is what that controller says; its colour is the leader that it names. ★ leads, ▲ was elected, ? knows no leader, a gap: nobody looked.")), picture.node, held.node),
      section("Nodes of the quorum", nodes.node), section("Curves", curveBox));

    function rows() {
      const quorum = app.state.quorum;
      if (!quorum) return [];
      const end = Math.max(...quorum.current_voters.map((each) => each.log_end_offset), 0);
      const lead = quorum.leader_id, leader_ms = quorum.current_voters.find((each) => each.replica_id === lead)?.last_fetch_timestamp ?? null;
      const row = (role) => (each) => ({ ...each, role: each.replica_id === lead ? "leader" : role, end, leader_ms });
      return [...quorum.current_voters.map(row("voter")), ...quorum.observers.map(row("observer"))];
    }

    function actions({ replica_id: id, replica_directory_id: directory, role, endpoints }) {
      const voter = { voter_id: id, voter_directory_id: directory };
      if (role === "observer") return [link(`/brokers/${id}`, "Broker"),
        button("Make a voter", () => app.act("add-voter", { ...voter, listeners: endpoints }, { title: `Make controller ${id} a voter` }), null, { "data-only": "controller" })];
      return [button("Let it lead", () => app.act("transfer-leadership", voter, { title: `Let controller ${id} lead`, button: "Transfer" }), null, { "data-only": "follower" }), " ",
        button("Snapshot", () => app.act("snapshot", {}, { node: id, title: `Snapshot of controller ${id}`, button: "Write it" })), " ",
        button("Remove", () => app.act("remove-voter", voter, { title: `Make controller ${id} an observer`, button: "Remove" }), "danger")];
    }

    function fill(each, [, , state, , , , acts]) {
      // The leader's clock, which may differ from this one's, says when others fetched, and when it answered.
      const silent = each.last_fetch_timestamp === null ? null : Math.max(0, (each.leader_ms ?? app.now()) - each.last_fetch_timestamp) + Math.max(0, app.now() - app.parts.quorum.as_of_ms);
      const words = app.parts.quorum.fault ? "? unknown" : each.role === "leader" ? "★ leads" : silent === null || silent > 10_000 ? "✕ silent" : each.end - each.log_end_offset > 1000 ? "… behind" : "✓ follows";
      state.className = words[0] === "✕" ? "bad" : "…?".includes(words[0]) ? "unknown" : "good";
      const isBroker = app.state.brokers?.brokers.some((broker) => broker.broker_id === each.replica_id) ?? true;
      for (const only of acts.querySelectorAll("[data-only]")) only.hidden = only.dataset.only === "follower" ? each.role === "leader" : isBroker;
      for (const anchor of acts.querySelectorAll("a")) anchor.hidden = !isBroker;
      for (const node of acts.querySelectorAll("button")) node.disabled = app.about.speaks_kafka === true && node.textContent !== "Remove";
      const isKnown = each.log_end_offset >= 0, fetched = each.role === "leader" ? "–" : silent === null ? "not in this epoch" : silent < 2000 ? "now" : `${span(silent)} ago`;
      return [, each.role, words, isKnown ? count(each.log_end_offset) : "?", isKnown ? count(each.end - each.log_end_offset) : "?", fetched, , each.replica_directory_id || "–",
        each.endpoints.map((at) => `${at.name}://${at.host}:${at.port}`).join(" ") || "–"];
    }

    async function begin() {
      const samples = await app.get("samples").catch(() => []);
      const ids = rows().map((each) => each.replica_id);
      const growth = curve(curveBox, { title: "Records committed", unit: "per second", seconds: seconds(), series: [{ label: "high watermark", colour: "ok" }] });
      const lags = curve(curveBox, { title: "Records behind the leader", unit: "records", seconds: seconds(), series: ids.map((id, at) => ({ label: String(id), colour: `c${at % 8}` })) });
      let before = null;
      const add = ([at, high, ends]) => {
        if (before && at > before[0]) growth.push(at, [at - before[0] > 5000 ? null : Math.max(0, (high - before[1]) / ((at - before[0]) / 1000))]);
        if (before && at - before[0] > 5000) lags.push(at - 1, ids.map(() => null));
        before = [at, high];
        const top = Math.max(...Object.values(ends), 0);
        lags.push(at, ids.map((id) => (ends[id] === undefined || ends[id] < 0 ? null : top - ends[id])));
      };
      samples.forEach(add);
      curves = [[growth, add], [lags, () => {}]];
    }

    let last = 0, drawn = null, broken = null;
    let started = false;
    function update() {
      const quorum = app.state.quorum, brokers = app.state.brokers;
      spans.forEach((node, at) => set(node, { "aria-pressed": String(seconds() === SPANS[at][0]) }));
      picture.update();
      text(progress, app.state.faults?.progress ?? "").hidden = !app.state.faults?.progress;
      held.update();
      keyed(findings, brokers?.findings ?? [], (each) => each.text, (each) => h("li", { class: each.is_fault ? "bad" : "" }, each.is_fault ? "✕ " : "… ", each.text, h("small", null, ` – ${each.next_step}`)));
      if (!quorum) return;
      text(facts.leader, quorum.leader_id === null ? "none" : String(quorum.leader_id));
      text(facts.epoch, String(quorum.leader_epoch));
      text(facts["high watermark"], count(quorum.high_watermark));
      text(facts.voters, `${quorum.current_voters.length}, ${quorum.kraft_version ? "in the log (KIP-853)" : "static"}${quorum.generation ? `, forced ${plural(quorum.generation, "time")}` : ""}`);
      text(facts["log start"], count(quorum.log_start_offset));
      text(facts["cluster id"], quorum.cluster_id);
      nodes.update(rows());
      if (!started) { started = true; begin(); }
      const times = app.state.commits, timed = app.parts.commits?.as_of_ms;
      if (times && curves.length === 2) {
        const commits = curve(curveBox, { title: "Time to commit", unit: "ms, at most; the newest commits", seconds: seconds(), series: [{ label: "median", colour: "c0" }, { label: "99 %", colour: "c1" }] });
        curves.push([commits, (found) => commits.push(app.parts.commits.as_of_ms, [found.p50_ms, found.p99_ms])]);
      }
      if (timed !== drawn) { drawn = timed; curves[2]?.[1](times); }
      const bands = JSON.stringify(faultBands(app)), given = `${curves.length} ${bands}`;
      if (given !== broken) { broken = given; curves.forEach(([each]) => each.shade(JSON.parse(bands))); }
      const at = app.parts.quorum.as_of_ms;
      if (curves.length && at - last >= 900 && !app.parts.quorum.fault) {
        last = at;
        curves[0][1]([at, quorum.high_watermark, Object.fromEntries(rows().map((each) => [each.replica_id, each.log_end_offset]))]);
      }
    }
    return { update, close() { picture.close(); held.close(); curves.forEach(([drawn]) => drawn.destroy()); } };
  },
};
