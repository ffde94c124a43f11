// The form of settings.

import { $ } from "./dom.js";
import { keepSettings, keptSettings } from "./store.js";

/** Fill the form with what was kept, and keep what is changed; `change()` is called then. */
export function setUpSettings(change) {
  const form = $("settings");
  for (const [name, value] of Object.entries(keptSettings())) {
    const field = form.elements[name];
    if (field) field[field.type === "checkbox" ? "checked" : "value"] = value;
  }
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", () => {
    keepSettings(values());
    change();
  });
}

/** Show what the server can do: drafts, conversations. */
export function limitSettings(info) {
  const form = $("settings");
  const canDraft = info.speculative_config !== null;
  form.elements.speculation.disabled = !canDraft;
  if (!canDraft) form.elements.speculation.checked = false;
  $("system-label").hidden = $("formatted-label").hidden = !info.has_chat_template;
}

/** Whether answers are shown as Markdown. */
export function isFormatted() {
  return $("settings").elements.formatted.checked;
}

/** Return the settings; null, with the field pointed at, if one is wrong. */
export function readSettings() {
  if (!$("settings").reportValidity()) return null;
  const { speculation, temperature, maxTokens, seed, system } = values();
  return {
    isDrafting: speculation,
    temperature: Number(temperature),
    maxTokens: Number(maxTokens),
    seed: seed === "" ? Math.floor(Math.random() * 2 ** 31) : Number(seed),
    system: system.trim(),
  };
}

function values() {
  const { elements } = $("settings");
  const found = {};
  for (const name of ["speculation", "formatted"]) found[name] = elements[name].checked;
  for (const name of ["temperature", "maxTokens", "seed", "system"]) found[name] = elements[name].value;
  return found;
}
