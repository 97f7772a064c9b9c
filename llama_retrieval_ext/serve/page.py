"""The page at ``/``: search with explanations; one file, nothing from another host."""

from typing import Final

_STYLE: Final = """
:root{color-scheme:light dark;font:15px/1.5 system-ui,sans-serif}
body{max-width:1100px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.2rem;font-weight:600;margin:0 0 1rem}
form{display:flex;flex-wrap:wrap;gap:.6rem;align-items:end}
label{display:flex;flex-direction:column;font-size:.8rem;opacity:.9}
label.wide{flex:1 1 100%}
input,select,button{font:inherit;padding:.45rem .6rem;border:1px solid #8888;border-radius:6px;
background:Canvas;color:CanvasText;min-width:0}
input[type=number]{width:6rem}
button{background:#4269d0;color:#fff;border-color:#4269d0;cursor:pointer}
button:disabled{opacity:.6}
#status{min-height:1.5rem;margin:.8rem 0;overflow-wrap:anywhere}
#status.bad{color:#c22f3d}
iframe{border:0;width:100%;background:Canvas}
"""
_FORM: Final = """
<form id="form" autocomplete="off">
<label class="wide">What to look for<input id="query" required maxlength="10000" autofocus></label>
<label>Search<select id="mode"><option>hybrid<option>vector<option>keyword</select></label>
<label>Hits<input id="top_k" type="number" min="1" value="10"></label>
<label>Field<input id="field" list="fields" placeholder="no filter"></label>
<datalist id="fields"></datalist>
<label>is<input id="value"></label>
<label>API key<input id="key" type="password" placeholder="none"></label>
<button id="go">Search</button>
</form>
<p id="status" role="status"></p>
<iframe id="answer" title="Hits, and why" sandbox="allow-same-origin" hidden></iframe>
"""
# The answer is shown in a frame that may not run scripts.
_SCRIPT: Final = """
"use strict";
const by = id => document.getElementById(id);
const headers = () => {
  const sent = {"Content-Type": "application/json"};
  if (by("key").value) sent.Authorization = "Bearer " + by("key").value;
  return sent;
};
const say = (text, bad) => {
  by("status").textContent = text;
  by("status").className = bad ? "bad" : "";
};
const numeric = text => text.trim() !== "" && isFinite(text);
const request = types => {
  const sent = {query: by("query").value, mode: by("mode").value, top_k: +by("top_k").value};
  const field = by("field").value.trim(), value = by("value").value;
  if (field) {
    const known = Object.keys(types[field] || {});
    const text = known.length ? known.includes("str") : !numeric(value);
    sent.filters = {filters: [{key: field, value: text ? value : +value}]};
  }
  return sent;
};
let fields = {};
const loadFields = async () => {
  const answer = await fetch("v1/fields", {headers: headers()}).catch(() => null);
  if (!answer || !answer.ok) return;
  fields = (await answer.json()).fields;
  by("fields").replaceChildren(...Object.keys(fields).map(name => new Option(name)));
};
const fit = () => {
  const shown = by("answer").contentDocument;
  if (shown) by("answer").style.height = shown.documentElement.scrollHeight + 24 + "px";
};
by("answer").addEventListener("load", () => {
  fit();
  by("answer").contentDocument.addEventListener("toggle", fit, true);
});
by("key").addEventListener("change", loadFields);
by("form").addEventListener("submit", async event => {
  event.preventDefault();
  by("go").disabled = true;
  say("searching …");
  try {
    const answer = await fetch("v1/explain?view=html", {
      method: "POST", headers: headers(), body: JSON.stringify(request(fields))});
    if (!answer.ok) {
      const failed = await answer.json().catch(() => ({}));
      throw new Error((failed.error || {}).message || "status " + answer.status);
    }
    by("answer").hidden = false;
    by("answer").srcdoc = await answer.text();
    say("");
  } catch (error) {
    by("answer").hidden = true;
    say(String(error.message || error), true);
  }
  by("go").disabled = false;
});
(async () => {
  await loadFields();
  const words = decodeURIComponent(location.hash.slice(1));
  if (words) {
    by("query").value = words;
    by("form").requestSubmit();
  }
})();
"""


def search_page(nonce: str) -> str:
    """Return the page; the nonce is that of the only script that it may run.

    Examples:
        >>> page = search_page("n0nce")
        >>> page.count("<script"), "src=" in page
        (1, False)

    """
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>llama-retrieval</title><style>{_STYLE}</style></head>"
        f"<body><h1>llama-retrieval</h1>{_FORM}"
        f'<script nonce="{nonce}">{_SCRIPT}</script></body></html>\n'
    )
