"""How a report looks: calm, light or dark as the reader's system is, and fit for paper."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root { color-scheme: light dark; --ground: #fff; --t1: #15181d; --t2: #47505d; --t3: #616b79; --line: #e1e4e9;
  --grid: #eef0f3; --b: #2672bc; --gap: #2672bc22; --warn: #c4232b; }
@media (prefers-color-scheme: dark) { :root { --ground: #0c0e11; --t1: #e9ecf0; --t2: #aab3c0; --t3: #8791a0;
  --line: #22272f; --grid: #1a1e24; --b: #4f9fea; --gap: #4f9fea33; --warn: #ff7a76; } }
body { max-width: 760px; margin: 32px auto; padding: 0 16px; background: var(--ground); color: var(--t1);
  font: 14px/1.5 Inter, "SF Pro Text", "Segoe UI Variable", "Noto Sans", sans-serif;
  font-variant-numeric: tabular-nums; }
h1 { font-size: 22px; font-weight: 600; margin: 0; }
h2 { font-size: 14px; font-weight: 600; margin: 32px 0 8px; }
.subject { color: var(--t2); margin: 0 0 24px; }
.verdict { font-size: 18px; font-weight: 600; line-height: 1.4; margin: 0 0 8px; }
.warning { color: var(--warn); margin: 4px 0; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { text-align: right; padding: 6px 0 6px 16px; border-bottom: 1px solid var(--line); font-weight: 400; }
thead th { color: var(--t3); font-size: 12px; }
tbody th, thead th:first-child { text-align: left; padding-left: 0; }
.facts td { text-align: left; }
.facts thead { display: none; }
.facts th { color: var(--t3); white-space: nowrap; }
svg { display: block; width: 100%; height: auto; }
svg text { font-size: 12px; fill: var(--t3); }
.grid { stroke: var(--grid); }
.gap { fill: var(--gap); }
polyline { fill: none; stroke-width: 1.75; }
polyline.a { stroke: var(--t2); stroke-dasharray: 5 3; }
polyline.b { stroke: var(--b); stroke-width: 2.25; }
.legend { margin: 0; color: var(--t2); font-size: 12px; }
.key { margin-right: 16px; }
.key::before { content: ""; display: inline-block; width: 20px; margin-right: 6px; vertical-align: middle; }
.key.a::before { border-top: 2px dashed var(--t2); }
.key.b::before { border-top: 2px solid var(--b); }
.same { stroke: var(--t3); }
line.interval { stroke: var(--t3); stroke-width: 2; }
circle.interval { fill: var(--t3); }
line.decisive { stroke: var(--b); stroke-width: 3; }
circle.decisive { fill: var(--b); }
.front { stroke: var(--t3); stroke-dasharray: 4 3; stroke-width: 1; }
.objective { stroke: var(--t1); stroke-dasharray: 4 3; }
.note { fill: var(--t2); }
.beaten { fill: var(--line); stroke: var(--t3); }
.on-front { fill: var(--t2); }
.best { fill: var(--b); }
@media print { body { margin: 0 auto; } h2 { break-after: avoid; } section { break-inside: avoid; } }
"""
