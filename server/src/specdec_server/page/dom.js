// Small helpers around the document.

export const $ = (id) => document.getElementById(id);

/** Make an element: `make("p", {class: "hint"}, "text", child, ...)`; attributes that are null or false are left out. */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) element.setAttribute(attribute, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

/** Tell screen readers something, once. */
export function announce(text) {
  $("status").textContent = text;
}

/** Return a number as people read it. */
export function number(value) {
  return value >= 100 ? Math.round(value).toString() : value.toFixed(1);
}

/** Return the text of a token with its spaces and line ends to be seen. */
export function visible(text) {
  if (text === "") return "∅";
  return text.replaceAll("\n", "⏎").replaceAll("\t", "⇥").replace(/^ | $/g, "␣").replaceAll("  ", "␣␣");
}
