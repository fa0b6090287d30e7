// Everything that happened, in words: newest first and live, filtered by kind and by object.
import { h, keyed, text, set, button, field, grid, count, moment, clock, link, path } from "./dom.js";

const KINDS = ["quorum", "broker", "topic", "other"];
const PAGE = 100, ROWS_MAX = 600, ASKS = 15, EVERY_MS = 250;

// The object of an event, as a link to its page where it has one.
export function objectOf({ kind, about, partition, change }) {
  const topic = partition === null ? about : about.slice(0, -String(partition).length - 1);
  if (about === "…" || kind === "other" || about === "all brokers") return h("span", null, about);
  if (kind === "topic") return link(path("topics", topic, ...(partition === null ? [] : [partition])), about);
  if (kind === "broker") return link(`/brokers/${about.replace("broker ", "")}`, about);
  return link(change.type === "LeaderChange" ? `/quorum?election=${change.epoch}` : "/quorum", about);
}

// Events as rows of a table, the newest first; `update` takes all of them again, and rows that stay keep their nodes.
export function eventTable(caption) {
  const keyOf = ({ about, change }) => `${change.offset} ${about} ${change.change}`;
  return grid(caption, ["time", "#offset", "#epoch", "object", "~what", "~who and why"], keyOf, (each) => {
    const { offset, epoch, append_time_ms: at, change, type, initiator, plan_id: plan, move_id: move, reason } = each.change;
    return [h("span", { title: moment(at) }, clock(at)), h("a", { href: `/time?at=${offset}`, title: "The metadata just before" }, count(offset)), String(epoch), objectOf(each), [type === "LeaderChange" ? "▲ " : "", change],
      [initiator && `${initiator} `, plan && [link(path("moves", plan), `plan ${plan}`), " "], move && `move ${move} `, reason && h("small", null, reason)]];
  }, ({ change }, _, tr) => { tr.classList.toggle("election", change.type === "LeaderChange"); });
}

export default {
  title: "Events",
  open(view, app) {
    let events = [], waiting = [], newest = 0, next = null, asked = 0, busy = false, again = false, timer = 0, typing = 0;
    const live = () => !app.query.get("from");
    const kinds = ["", ...KINDS].map((kind) => button(kind || "all", () => { app.setQuery({ kind }); load(); }));
    const names = h("datalist", { id: "objects" });
    const about = field(app, "about", "Object", () => { clearTimeout(typing); typing = setTimeout(load, 200); }, null, { "data-filter": true, list: "objects", placeholder: "orders-3, broker 1 …" });
    const internal = field(app, "internal", "internal topics", load, true);
    const fresh = button("", () => { scrollTo(0, 0); show(); }, "primary fresh-events", { hidden: true });
    const back = button("Back to the newest", () => { app.setQuery({ from: null }); load(); });
    const older = button("Show older", showOlder);
    const note = h("p", { class: "small", "aria-live": "polite" });
    const list = eventTable("Events");
    view.append(h("section", null,
      h("div", { class: "filters" }, h("div", { class: "legend choice", role: "group", "aria-label": "Kind" }, kinds), about, names, internal, back, fresh),
      list.node, note, h("div", { class: "tools" }, older)));

    const filters = () => ({ kind: app.query.get("kind"), about: app.query.get("about"), internal: app.query.get("internal") || app.query.get("about") ? null : 0 });
    const isDown = () => scrollY > 120 || list.node.contains(document.activeElement?.closest("tr"));

    function draw() {
      list.update(events);
      kinds.forEach((node, at) => set(node, { "aria-pressed": String((app.query.get("kind") ?? "") === ["", ...KINDS][at]) }));
      back.hidden = live();
      older.hidden = next === null;
      fresh.hidden = waiting.length === 0;
      text(fresh, `${count(waiting.length)} new`);
      keyed(names, [...new Set(events.map((each) => each.about))].slice(0, 100), (name) => name, (name) => h("option", { value: name }));
      const end = next === null ? "This is where the log begins, or its earliest snapshot." : events.length < PAGE ? `Looked back to offset ${count(next)}.` : "";
      text(note, [live() ? "" : `Events before offset ${count(Number(app.query.get("from")))}.`, events.length ? "" : "Nothing like that has happened.", end].filter(Boolean).join(" "));
    }

    function show() {
      events = [...waiting, ...events];
      waiting = [];
      if (events.length > ROWS_MAX) load(); else draw();
    }

    // Read older events until a page is full or the log ends. A filter may need many requests, so it stops after some.
    async function read(before, mine) {
      const found = [];
      let newer = null;
      for (let ask = 0; ask < ASKS && found.length < PAGE; ask++) {
        const answer = await app.get("records", { ...filters(), before, limit: PAGE });
        if (mine !== asked) return null;
        newer ??= answer.offset;
        found.push(...answer.events);
        before = next = answer.next;
        if (before === null) break;
      }
      return { found, newer };
    }

    async function load() {
      const mine = ++asked;
      try {
        const answer = await read(app.query.get("from"), mine);
        if (answer === null) return;
        events = answer.found;
        waiting = [];
        newest = answer.newer;
        draw();
      } catch (error) { if (mine === asked) text(note, error.message); }
    }

    async function showOlder() {
      if (events.length >= ROWS_MAX) { app.setQuery({ from: next }); scrollTo(0, 0); load(); return; }
      older.disabled = true;
      const answer = await read(next, asked).catch((error) => { text(note, error.message); return null; });
      older.disabled = false;
      if (answer) { events = [...events, ...answer.found]; draw(); }
    }

    // Read what is new, four times a second at most; a reader who has scrolled down is not disturbed.
    async function look() {
      if (busy || timer) { again = true; return; }
      busy = true;
      again = false;
      const mine = asked;
      try {
        const answer = await app.get("records", { ...filters(), after: newest, limit: 500 });
        if (mine !== asked) return;
        if (answer.next !== null || answer.offset < newest) { await load(); return; }
        newest = answer.offset;
        if (answer.events.length) { waiting = [...answer.events, ...waiting]; if (isDown()) draw(); else show(); }
      } catch (error) { text(note, error.message); } finally {
        busy = false;
        timer = setTimeout(() => { timer = 0; if (again) look(); }, EVERY_MS);
      }
    }
    app.onChange = (change) => { if (live()) { if (change.reset) load(); else look(); } };
    load();
    return { update() { if (live() && newest && (app.state.log?.offset ?? 0) > newest) look(); }, close() { asked++; clearTimeout(timer); clearTimeout(typing); } };
  },
};
