// Time travel: the metadata of any moment as a tree, and the difference of two moments with the records in between.
import { h, svg, keyed, text, set, alert, button, factList, section, count, plural, moment, link } from "./dom.js";
import { command } from "./actions.js";
import { eventTable } from "./events.js";

const BUCKETS = 240, SHOWN_MAX = 300, LIVE_MS = 1000;
const UNITS = { s: 1e3, m: 6e4, h: 36e5, d: 864e5 };
const SIGNS = { added: ["+", "good"], removed: ["−", "bad"], changed: ["~", "unknown"] };

// What people type as a moment, as the console takes it: an offset, "" for now, or a time with its zone.
export function momentOf(typed, now) {
  const words = typed.trim().toLowerCase();
  if (words === "" || words === "now" || words === "newest") return "";
  const offset = words.replace(/(?<=\d)[,\s](?=\d{3}\b)/g, "");
  if (/^\d+$/.test(offset)) return offset;
  const ago = /^(\d+(?:\.\d+)?)\s*(s|m|h|d)[a-z]*\s+ago$/.exec(words);
  const today = /^(\d{1,2}):(\d{2})(?::(\d{2}))?$/.exec(words);
  const at = ago ? now - Number(ago[1]) * UNITS[ago[2]] : today ? new Date(now).setHours(Number(today[1]), Number(today[2]), Number(today[3] ?? 0), 0)
    : words.startsWith("@") ? Number(words.slice(1)) : /^\d{4}-/.test(words) ? Date.parse(typed.trim()) : NaN;
  if (!Number.isFinite(at) || Math.abs(at) > 8.64e15) throw new Error(`${typed} does not name a moment; type an offset, 14:05, 2026-11-21T17:06:35Z or 10 min ago`);
  return new Date(at).toISOString();
}
const shown = (value) => (value === null || value === undefined ? "nothing" : typeof value === "string" ? value || "“”" : JSON.stringify(value));

export default {
  title: "Time travel",
  open(view, app) {
    let marks = { first: 0, newest: 0, since: 0, marks: [], elections: [] }, at = null, asked = 0, timer = 0, sliding = 0, drawn = "", read = 0, marking = false, wrong = "";
    const query = (name) => app.query.get(name) ?? "";
    const opened = new Set();
    const [dl, facts] = factList(["offset", "epoch", "time"]), inside = h("p", { class: "unknown", role: "status" });
    const slider = h("input", { type: "range", class: "time-slider", "aria-label": "Offset of the metadata log", step: "1", min: "0", max: "0", onkeydown: step, oninput: () => { clearTimeout(sliding); const to = slider.value; sliding = setTimeout(() => go({ at: Number(to) >= marks.newest ? null : to }), 100); } });
    const picture = svg("svg", { class: "time-marks", role: "img", "aria-label": "Nothing is known yet" });
    const fault = alert();
    const field = (name, label) => h("input", { "aria-label": label, placeholder: name === "at" ? "now" : "not compared", oninput: () => { wrong = ""; fail(null); }, onchange: (event) => { try { go({ [name]: momentOf(event.target.value, app.now()) || (name === "to" && event.target.value ? "now" : null) }); } catch (error) { wrong = error.message; fail(null); } } });
    const from = field("at", "Moment: an offset or a time"), to = field("to", "Compare with: an offset or a time");
    const now = button("Now", () => go({ at: null })), compare = button("", () => go({ to: query("to") ? null : "now" }));
    const find = h("input", { "data-filter": true, value: query("q"), placeholder: "filter by name", "aria-label": "Filter by name", oninput: () => { clearTimeout(sliding); sliding = setTimeout(() => go({ q: find.value.trim() }), 150); } });
    const title = h("h2", null, "…"), crumbs = h("p", { class: "crumbs" }), tree = h("div", { class: "tree" }), shell = h("div"), between = h("div");
    view.append(
      h("section", null,
        h("div", { class: "chart" }, picture), slider,
        h("div", { class: "tools" }, h("label", { class: "moment" }, "At ", from), now, button("◀ Change", () => jump(-1)), button("Change ▶", () => jump(1)), h("label", { class: "moment" }, "Compare with ", to), compare),
        h("p", { class: "small" }, "▲ election. Arrow keys: one batch. Page keys: the next change. A moment is an offset, 14:05, 2026-11-21T17:06:35Z or 10 min ago."),
        fault, inside, dl),
      h("section", null, title, h("div", { class: "tools" }, find, crumbs), tree, h("h3", null, "As a command"), shell),
      between);

    const fail = (error) => text(fault, wrong || (error?.message ?? "")); // what was typed wrong stays until the next input
    const value = () => (query("at") === "" ? marks.newest : at ?? Number(slider.value));
    const target = (to) => (to >= marks.newest ? null : Math.max(to, marks.first));
    const go = (changes) => { wrong = ""; app.setQuery(changes); drawn = ""; load(); };

    // -- the slider ------------------------------------------------------------------------------------------------------

    function jump(way) {
      const here = value();
      const ends = marks.marks.map(([, end]) => end);
      const to = way > 0 ? ends.find((end) => end > here) ?? marks.newest : ends.findLast((end) => end < here) ?? marks.first;
      go({ at: target(to) });
    }

    function step(event) {
      const way = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key], page = { PageUp: 1, PageDown: -1 }[event.key];
      if (!way && !page) return;
      event.preventDefault();
      if (page) { jump(page); return; }
      const here = value(), batch = marks.marks.find(([base, end]) => (way > 0 ? base <= here && here < end : base < here && here <= end));
      go({ at: target(batch ? batch[way > 0 ? 1 : 0] : here + way) });
    }

    function drawMarks() {
      const { first, newest, since, elections } = marks, length = Math.max(1, newest - first);
      const place = (offset) => `${(100 * (offset - first)) / length}%`;
      const counts = new Map();
      for (const [, end] of marks.marks) { const bucket = Math.min(BUCKETS - 1, Math.floor(((end - first) * BUCKETS) / length)); counts.set(bucket, (counts.get(bucket) ?? 0) + 1); }
      const tall = ([, number]) => Math.min(22, 5 + 5 * Math.log2(number));
      picture.replaceChildren(
        since > first ? svg("rect", { class: "unread", x: 0, y: 14, width: place(since), height: 22 }, svg("title", null, `Changes before offset ${since} are not marked`)) : "",
        ...[...counts].map((each) => svg("rect", { class: "change", x: `${(100 * each[0]) / BUCKETS}%`, y: 36 - tall(each), width: 3, height: tall(each) }, svg("title", null, plural(each[1], "change")))),
        ...elections.map((each) => svg("text", { x: place(each.offset), y: 12, "text-anchor": "middle" }, "▲", svg("title", null, `Controller ${each.leader} leads epoch ${each.epoch} at offset ${each.offset}, ${moment(each.at_ms)}`))));
      set(picture, { "aria-label": `${plural(marks.marks.length, "change")} and ${plural(elections.length, "election")} between offsets ${since} and ${newest}.` });
      set(slider, { min: first, max: newest });
      slider.value = String(query("at") && at !== null ? at : newest);
    }

    // -- the tree, and the difference ----------------------------------------------------------------------------------------

    const address = (path) => `/time?${new URLSearchParams({ at: String(at), ...(path && { path }) })}`;

    async function branch(path, moment, filter) {
      const answer = await app.get("image", { at: moment, path, q: filter });
      at = answer.offset;
      const inner = await Promise.all(answer.entries.map((each) => (each.directory && opened.has(`${path}/${each.name}`) ? branch(`${path}/${each.name}`, moment, "") : null)));
      const list = h("ul", { class: "plain" }, answer.entries.map((each, place) => {
        const here = `${path}/${each.name}`;
        if (!each.directory) return h("li", null, h("b", null, each.name), " ", h("code", null, shown(each.value)));
        const box = h("details", { open: opened.has(here), ontoggle: async () => {
          if (!box.open) { opened.delete(here); return; }
          if (opened.has(here) && box.children.length > 1) return;
          opened.add(here);
          try { box.append((await branch(here, moment, "")).list); } catch (error) { fail(error); }
        } }, h("summary", { "data-path": here }, each.name), inner[place]?.list);
        return h("li", { class: "branch" }, box, h("a", { href: address(here.slice(1)), "aria-label": `Only ${each.name}`, title: "This part alone, as a link" }, "↗"));
      }), answer.total > answer.entries.length ? h("li", { class: "note" }, `${count(answer.entries.length)} of ${count(answer.total)} names; filter to see others.`) : null, answer.total ? null : h("li", { class: "note" }, filter ? "No name has that in it." : "Nothing is here."));
      return { list, answer };
    }

    function place(answer) {
      at = answer.offset;
      slider.value = query("at") ? String(at) : String(marks.newest);
      set(slider, { "aria-valuetext": `offset ${at}, ${answer.at_ms ? moment(answer.at_ms) : "the beginning"}` });
      const typed = /^\d+$/.test(query("at")) ? Number(query("at")) : at;
      text(inside, typed > at ? `Offset ${count(typed)} is inside a batch; the state before it, at offset ${count(at)}, is shown.` : "");
      text(facts.offset, count(at));
      text(facts.epoch, String(answer.epoch));
      text(facts.time, `${answer.at_ms ? moment(answer.at_ms) : "before the first record"}${query("at") ? "" : ", live"}`);
      const options = app.about.where ? ` ${app.about.where}` : "", path = query("path");
      const part = /^topics\/byName\/([^/]+)\/(\d+)$/.exec(path);
      const lines = answer.to !== undefined ? [`kraftlab metadata diff --from ${at} --to ${answer.to} --records${options}`]
        : [`kraftlab metadata at --offset ${at}${path ? ` '${path.replaceAll("'", "'\\''")}'` : ""}${options}`, ...(part ? [`kraftlab metadata history ${part[1]}-${part[2]}${options}`] : [])];
      keyed(shell, lines, (line) => line, command);
    }

    async function load() {
      const mine = ++asked, path = query("path"), to_ = query("to");
      for (const [node, given] of [[from, query("at")], [to, to_]]) if (!wrong && document.activeElement !== node) node.value = given;
      text(compare, to_ ? "Stop comparing" : "Compare with now");
      try {
        const found = to_ ? await app.get("diff", { from: query("at"), to: to_, q: query("q") }) : await branch(path && `/${path}`, query("at"), query("q"));
        if (mine !== asked) return;
        fail(null);
        if (to_) await compared(found, mine); else still(found, path);
      } catch (error) { if (mine === asked) fail(error); }
    }

    function still({ list, answer }, path) {
      place(answer);
      between.replaceChildren();
      text(title, query("at") ? `At offset ${count(answer.offset)}` : "Now");
      const parts = path.split("/").filter(Boolean);
      crumbs.replaceChildren(h("nav", { "aria-label": "Path" }, link(address(""), "all"), parts.map((name, at_) => [" / ", link(address(parts.slice(0, at_ + 1).join("/")), name)])));
      const now_ = JSON.stringify([query("at") && answer.offset, answer.entries, path]) + list.textContent;
      if (now_ === drawn) return;
      drawn = now_;
      const focused = document.activeElement?.dataset?.path;
      tree.replaceChildren(list);
      if (focused) [...tree.querySelectorAll("summary")].find((each) => each.dataset.path === focused)?.focus();
    }

    async function compared(found, mine) {
      place({ ...found.from, to: found.to.offset });
      text(title, `What differs between offsets ${count(found.from.offset)} and ${count(found.to.offset)}`);
      text(crumbs, `${plural(found.total, "thing differs", "things differ")}${found.total > SHOWN_MAX ? `, ${SHOWN_MAX} are shown; filter to see others` : ""}. ${found.to.at_ms ? `Until ${moment(found.to.at_ms)}.` : ""}`);
      const groups = Map.groupBy(found.changes.slice(0, SHOWN_MAX), (each) => each.path.split("/").slice(0, 2).join("/"));
      tree.replaceChildren(...[...groups].flatMap(([name, changes]) => [h("h3", null, name, h("small", null, ` ${changes.length}`)), h("ul", { class: "plain diff" }, changes.map((each) => h("li", null,
        h("b", { class: SIGNS[each.change][1] }, `${SIGNS[each.change][0]} ${each.change}`), " ", h("code", null, each.path),
        h("ul", { class: "plain" }, Object.entries(each.fields).filter(([, { before, after }]) => each.change === "changed" || (before ?? after)?.length !== 0).map(([field_, { before, after }]) => h("li", null, `${field_}: `, each.change === "added" ? null : h("del", null, shown(before)), each.change === "changed" ? " → " : "", each.change === "removed" ? null : h("ins", null, shown(after))))))))]));
      const [low, high] = [found.from.offset, found.to.offset].sort((a, b) => a - b);
      const list = eventTable("Records in between"), more = button("Show older", () => older());
      let events = [], before = high;
      const older = async () => {
        const answer = await app.get("records", { after: low, before, limit: 100 });
        if (mine !== asked) return;
        list.update(events = [...events, ...answer.events]);
        more.hidden = (before = answer.next) === null;
      };
      between.replaceChildren(section("Records in between", list.node, more));
      await older();
    }

    // Read what is new. Marks of a long log take a while, and the tree does not wait for them.
    async function look() {
      read = performance.now();
      if (!query("at") || query("to") === "now" || fault.textContent) load();
      if (marking) return;
      marking = true;
      try { marks = await app.get("marks"); drawMarks(); } catch (error) { fail(error); } finally { marking = false; }
    }
    app.onChange = () => { timer ||= setTimeout(() => { timer = 0; look(); }, Math.max(0, read + LIVE_MS - performance.now())); };
    if (query("at") && query("to") !== "now") load();
    look();
    return { update() {}, close() { asked++; clearTimeout(timer); clearTimeout(sliding); app.onChange = null; } };
  },
};
