// Requests to the server this page comes from. Paths are relative, so that a proxy may show the server under a path.

const KEY = "specdec.key";
let key = sessionStorage.getItem(KEY) ?? "";

/** What went wrong, as a sentence for people. */
export class ApiError extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

/** Send this API key from now on. */
export function useKey(given) {
  key = given.trim();
  sessionStorage.setItem(KEY, key);
}

/** Return the JSON that a path answers with. */
export async function get(path) {
  return (await send(path, {})).json();
}

/** Yield the pieces of a streamed answer. Throws ApiError if it does not come to its end, and AbortError if it is given up. */
export async function* stream(path, body, signal) {
  const answer = await send(path, {
    method: "POST",
    body: JSON.stringify({ ...body, stream: true }),
    signal,
  });
  for await (const data of events(answer.body)) {
    if (data === "[DONE]") return;
    const piece = JSON.parse(data);
    if (piece.error) throw new ApiError(sentence(piece.error.message));
    yield piece;
  }
  throw new ApiError("The connection ended before the answer did. Is the server still running?");
}

async function send(path, options) {
  const headers = { "Content-Type": "application/json" };
  if (key) headers.Authorization = `Bearer ${key}`;
  let answer;
  try {
    answer = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server cannot be reached. Is it still running?");
  }
  if (answer.ok) return answer;
  throw new ApiError(await told(answer), answer.status);
}

async function told(answer) {
  if (answer.status === 401) return key ? "The server does not know this API key." : "The server asks for an API key.";
  const body = await answer.json().catch(() => null);
  const message = body?.error?.message ?? `The server answered with status ${answer.status}.`;
  const wait = answer.headers.get("Retry-After");
  return sentence(message) + (wait ? ` Try again in ${wait} s.` : "");
}

function sentence(message) {
  const text = message.charAt(0).toUpperCase() + message.slice(1);
  return /[.!?]$/.test(text) ? text : `${text}.`;
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((error) => {
        if (error.name === "AbortError") throw error;
        return { done: true };
      });
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) if (part.startsWith("data: ")) yield part.slice(6);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
