"""The page's looks: one column on a phone, two pictures side by side where there is room, light or dark as asked."""

__all__ = ["STYLE"]

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #59626d; --paper: #ffffff; --grid: #d9dee4; --panel: #f5f7f9;
  --accent: #0b62b8; --warn: #fff4d6; --warn-edge: #c98a00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7eaee; --soft: #a3adb8; --paper: #14171b; --grid: #363d46;
  --panel: #1d2127; --accent: #76b3f5; --warn: #352a10; --warn-edge: #d9a02b; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; }
header, main, footer { max-width: 72rem; margin: 0 auto; padding: 0 1rem; }
header { padding-top: 1.5rem; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0 0 .5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.4rem; margin: 3rem 0 .5rem; padding-top: 1rem; border-top: 2px solid var(--grid);
  overflow-wrap: anywhere; }
h3 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
h4 { font-size: .95rem; margin: 1rem 0 .3rem; overflow-wrap: anywhere; }
p { max-width: 46rem; margin: .5rem 0; overflow-wrap: anywhere; }
a { color: var(--accent); }
code { font-size: .88em; overflow-wrap: anywhere; }
.kind, .facts { color: var(--soft); }
.legend, figcaption { color: var(--soft); font-size: .85rem; }
.warning, .unfinished { background: var(--warn); border-left: 4px solid var(--warn-edge); padding: .6rem .8rem;
  border-radius: .2rem; }
.unfinished { max-width: 46rem; }
.scroll { overflow-x: auto; margin: .8rem 0 .3rem; }
.scroll:focus-visible { outline: 2px solid var(--accent); }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); font-size: .85rem; padding-bottom: .3rem; }
th, td { padding: .3rem .8rem .3rem 0; text-align: right; vertical-align: top; white-space: nowrap; }
th:first-child, td:first-child, th[scope=row] { text-align: left; }
thead th { border-bottom: 1px solid var(--soft); font-weight: 600; }
tbody tr + tr > * { border-top: 1px solid var(--grid); }
tbody th { font-weight: 500; }
table:has(ul.plain) :is(th, td) { text-align: left; }
td:has(ul.plain) { white-space: normal; min-width: 16rem; }
.tag { background: var(--panel); border: 1px solid var(--grid); border-radius: 1rem; padding: 0 .5rem;
  font-size: .75rem; color: var(--soft); }
figure { margin: 1rem 0; }
.pictures { display: grid; gap: .5rem 1.5rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); }
.pictures.small { grid-template-columns: repeat(auto-fill, minmax(min(100%, 17rem), 1fr)); }
.pictures.wide { grid-template-columns: 1fr; }
.pictures > div { min-width: 0; max-width: 34rem; }
.pictures.wide > div { max-width: 44rem; }
.pictures svg { display: block; width: 100%; height: auto; }
figcaption { max-width: 46rem; margin-top: .3rem; }
.keys { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; margin: .4rem 0; padding: 0;
  color: var(--ink); font-size: .9rem; }
.keys li { display: flex; align-items: center; gap: .4rem; overflow-wrap: anywhere; }
.swatch svg { width: 28px; height: 8px; display: block; }
ul.plain { list-style: none; margin: 0; padding: 0; }
nav ul { padding-left: 1.2rem; margin: .3rem 0; columns: 20rem; }
.words > li { margin: .5rem 0; }
dl { display: grid; grid-template-columns: minmax(7rem, max-content) 1fr; gap: .3rem 1rem; margin: .6rem 0;
  font-size: .92rem; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; min-width: 0; }
dd ul { margin: 0; padding-left: 1.1rem; }
details { margin: .6rem 0; border: 1px solid var(--grid); border-radius: .3rem; padding: .4rem .8rem; }
summary { cursor: pointer; font-weight: 500; }
footer { color: var(--soft); font-size: .85rem; margin: 3rem auto 2rem; }
@media print { .scroll { overflow: visible; } figure, tr { break-inside: avoid; } }
"""
