// The API's reference: Swagger UI over openapi.json of this server, with the key that the page at / uses.

const KEY = "specdec.key";
const wantsDark = matchMedia("(prefers-color-scheme: dark)");
const setScheme = () => document.documentElement.classList.toggle("dark-mode", wantsDark.matches);
const withKey = (headers) => {
  const key = sessionStorage.getItem(KEY);
  return key ? { ...headers, Authorization: `Bearer ${key}` } : headers;
};

async function show() {
  const form = document.getElementById("key-form");
  const answer = await fetch("openapi.json", { headers: withKey({}) });
  if (answer.status === 401) {
    form.hidden = false;
    if (sessionStorage.getItem(KEY)) document.getElementById("key-wrong").textContent = "The server does not know this key.";
    document.getElementById("key").focus();
    return;
  }
  form.hidden = true;
  window.SwaggerUIBundle({
    spec: await answer.json(),
    dom_id: "#reference",
    deepLinking: true,
    defaultModelsExpandDepth: 0,
    displayRequestDuration: true,
    validatorUrl: null,
    requestInterceptor: (request) => {
      request.headers = withKey(request.headers);
      return request;
    },
  });
}

document.getElementById("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, document.getElementById("key").value.trim());
  show();
});
wantsDark.addEventListener("change", setScheme);
setScheme();
show();
