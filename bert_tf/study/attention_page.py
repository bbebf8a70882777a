"""Attention as a page to explore: one HTML file that needs nothing else.

The tokens stand twice, side by side. Lines lead from a token on the left to those on
the right that it looks at, the thicker the more; pointing at a token shows its lines
alone. Layer, and head or the mean of all heads, are chosen above.
"""

import json
from string import Template

from bert_tf.study.attention_maps import AttentionMaps

# Shares are written to so many digits: more cannot be seen.
_DIGITS = 3

_PAGE = Template(
    """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>$title</title>
<style>
body { font: 15px/1.4 sans-serif; margin: 2em; color: #222; }
select { font: inherit; margin-right: 1.5em; }
svg text { font: 14px monospace; cursor: default; }
svg text.chosen { font-weight: bold; }
</style>
</head>
<body>
<h1 style="font-size: 1.2em">$title</h1>
<p>Layer <select id="layer"></select> Head <select id="head"></select>
Point at a token on the left.</p>
<svg id="map"></svg>
<script>
const data = $data;
const row = 22, left = 200, right = 420, top_ = 20;
const svg = document.getElementById("map");
const layer = document.getElementById("layer"), head = document.getElementById("head");
function option(select, value, text) {
  const o = document.createElement("option");
  o.value = value; o.textContent = text; select.append(o);
}
data.layers.forEach((number, i) => option(layer, i, number));
option(head, -1, "mean of all");
data.heads.forEach((number, i) => option(head, i, number));
layer.value = data.layers.length - 1;
function add(name, attributes, text) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) e.setAttribute(key, attributes[key]);
  if (text !== undefined) e.textContent = text;
  svg.append(e);
  return e;
}
function share(from, to) {
  const heads = data.probabilities[layer.value];
  if (head.value >= 0) return heads[head.value][from][to];
  return heads.reduce((sum, one) => sum + one[from][to], 0) / heads.length;
}
function draw(chosen) {
  svg.replaceChildren();
  const n = data.tokens.length;
  svg.setAttribute("width", right + 320);
  svg.setAttribute("height", top_ + row * n + 10);
  for (let i = 0; i < n; i++) {
    if (chosen !== null && i !== chosen) continue;
    for (let j = 0; j < n; j++) {
      const p = share(i, j);
      if (p < 0.01) continue;
      add("line", {x1: left + 6, y1: top_ + row * i - 5, x2: right - 6,
        y2: top_ + row * j - 5, stroke: "#1f77b4", "stroke-width": 6 * p,
        "stroke-opacity": chosen === null ? 0.5 : 0.9});
    }
  }
  data.tokens.forEach((token, i) => {
    const y = top_ + row * i;
    const e = add("text", {x: left, y: y, "text-anchor": "end"}, token);
    if (i === chosen) e.setAttribute("class", "chosen");
    e.addEventListener("mouseenter", () => { if (chosen !== i) draw(i); });
    const p = chosen === null ? "" : "  " + (100 * share(chosen, i)).toFixed(1) + " %";
    add("text", {x: right, y: y}, token + p);
  });
}
svg.addEventListener("mouseleave", () => draw(null));
layer.addEventListener("change", () => draw(null));
head.addEventListener("change", () => draw(null));
draw(null);
</script>
</body>
</html>
"""
)


def attention_page(maps: AttentionMaps, title: str) -> str:
    """The page's HTML."""
    data = {
        "tokens": maps.tokens,
        "layers": maps.layers,
        "heads": maps.heads,
        "probabilities": [
            [
                [[round(float(p), _DIGITS) for p in row] for row in head]
                for head in layer
            ]
            for layer in maps.probabilities
        ],
    }
    # "</script>" in a token must not end the script.
    text = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")
    escaped = title.replace("&", "&amp;").replace("<", "&lt;")
    return _PAGE.substitute(title=escaped, data=text)
