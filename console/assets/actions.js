// The dialog of an action: what will happen, what the cluster says to it, the same as a command, and the button.
import { h, alert, button, row, table, text } from "./dom.js";

const WORDS_MAX = 100;

// Show the answer of the check: replicas before and after for moves and plans, otherwise its fields.
function answered(answer) {
  const moves = (answer.responses ?? answer.topics ?? []).flatMap((topic) => (topic.partitions ?? []).map((each) => [topic.name, each]));
  if (!moves.length || !moves[0][1].replicas) return null;
  const list = (ids) => (ids?.length ? `[${ids.join(", ")}]` : "–");
  const columns = ["partition", "replicas", "adding", "removing", "target"];
  const rows = moves.map(([name, each]) => row(columns, [`${name}-${each.partition_index ?? 0}`, ...[each.replicas, each.adding_replicas, each.removing_replicas, each.target_replicas].map(list)]));
  return table("What the cluster answered", columns, h("tbody", null, rows), "tall");
}

export function command(line) {
  const copy = button("Copy", async () => { await navigator.clipboard.writeText(line); text(copy, "Copied"); setTimeout(() => text(copy, "Copy"), 1500); });
  return h("div", { class: "command" }, h("code", { tabindex: "0" }, line), copy);
}

// Show a dialog with what `fill(close)` returns. Resolve with what `close(value)` is given, with null if it is closed otherwise.
export function modal(title, fill, kind = null) {
  return new Promise((resolve) => {
    let outcome = null;
    const box = h("dialog", { class: kind, "aria-label": title }, h("h2", null, title));
    box.append(...fill((value = null) => { outcome = value; box.close(); }));
    box.addEventListener("close", () => { box.remove(); resolve(outcome); });
    document.body.append(box);
    box.showModal();
  });
}

// Resolve with the answer once the action is done, with null if it was given up. `options`: title, node, button.
export const dialog = (app, name, request, { title = "Change the cluster", node = null, button: words = "Do it", log_dirs } = {}) => modal(title, (close) => {
  const body = h("div", null, h("p", null, "Asking the cluster what this would do …"));
  const fail = (error) => body.append(text(alert(), error.message));
  const send = (preview) => app.post(`actions/${name}`, { request, preview, node, log_dirs });
  const force = button("See what force does", () => { request = { ...request, force: true }; force.remove(); ask(); }, "danger");
  const confirm = button(words, async () => {
    confirm.disabled = true;
    try {
      const outcome = await send(false);
      app.say(`${title}: done`);
      close(outcome);
    } catch (error) { fail(error); confirm.disabled = false; }
  }, "primary", { disabled: true });
  const ask = () => send(true).then((shown) => {
    const typed = shown.typed ? h("input", { autocomplete: "off", "aria-label": `Type ${shown.typed} to confirm`, oninput: () => { confirm.disabled = typed.value !== shown.typed; } }) : null;
    const may = app.about.may_alter || app.about.must_log_in, more = shown.words.length - WORDS_MAX;
    body.replaceChildren(h("ul", null, shown.words.slice(0, WORDS_MAX).map((line) => h("li", null, line)), more > 0 && h("li", null, `and ${more} more, as the command below has them`)),
      h("p", { class: "note" }, shown.checked ? "The cluster has checked this change and would accept it." : "This call has no dry run: the cluster checks the change when it applies it."),
      answered(shown.answer ?? {}) ?? "", h("h3", null, "As a command"), command(shown.command),
      typed ? h("label", { class: "typed" }, "Type ", h("b", null, shown.typed), " to confirm ", typed) : "");
    if (app.about.read_only) body.append(h("p", { class: "unknown" }, "This console was started with --read-only: use the command."));
    confirm.disabled = app.about.read_only || !may || Boolean(typed);
    (typed ?? confirm).focus();
  }, (error) => { body.replaceChildren(); fail(error); if (/\bforce\b/.test(error.message) && !request.force) body.append(force); });
  ask();
  return [body, h("div", { class: "tools" }, confirm, button(words.startsWith("Cancel") ? "Close" : "Cancel", () => close()))];
}, "action");

// Ask for fields: [[name, label, value, attributes]]; `options` of the attributes makes a list to choose from, `rows` a text of
// lines. Resolve with the values by name, with null if it was given up. `wrong(values)` returns what is wrong with them, or "".
export const form = (title, fields, { go = "Go on", wrong = () => "" } = {}) => modal(title, (close) => {
  const inputs = fields.map(([name, , value, { options, ...attributes }]) => (options ? h("select", { name }, options.map((each) => h("option", { value: each }, each)))
    : h(attributes.rows ? "textarea" : "input", { name, value: value ?? "", autocomplete: "off", ...attributes }))), fault = alert();
  const submit = (event) => {
    event.preventDefault();
    const given = Object.fromEntries(inputs.map((each) => [each.name, each.value]));
    if (!text(fault, wrong(given)).textContent) close(given);
  };
  return [h("form", { class: "asked", onsubmit: submit }, inputs.map((each, at) => h("label", null, fields[at][1], each)), fault,
    h("div", { class: "tools" }, h("button", { class: "primary" }, go), button("Cancel", () => close(), null, { type: "button" })))];
});
