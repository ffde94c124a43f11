// A block of code, and a button that copies it.

import { announce, make } from "./dom.js";

const SHOWN_MS = 2000;

/** Show code; `text` is what is copied. */
export function codeBlock(code, text, language = "") {
  const button = make("button", { type: "button", class: "copy", "aria-label": "Copy code" }, "Copy");
  button.addEventListener("click", async () => {
    const told = (await copy(text)) ? "Copied" : "Not copied";
    button.textContent = told;
    announce(told);
    setTimeout(() => (button.textContent = "Copy"), SHOWN_MS);
  });
  const bar = make("div", { class: "bar" }, make("span", { class: "language" }, language), button);
  return make("div", { class: "code" }, bar, make("pre", { tabindex: "0" }, code));
}

/** Copy a text; browsers have a clipboard for pages of this machine and of HTTPS alone, elsewhere what is selected is copied. */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const before = document.activeElement;
    const field = make("textarea", { class: "visually-hidden", "aria-hidden": "true", tabindex: "-1" });
    field.value = text;
    document.body.append(field);
    field.select();
    const isDone = document.execCommand("copy");
    field.remove();
    before?.focus();
    return isDone;
  }
}
