"""The report's page: what is the same for every demo. Braces of the style are doubled."""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>Potluck: alone and together</title>
<style>
:root {{ color-scheme: light dark; --ink: #1b1f24; --quiet: #5b6570; --paper: #fff;
  --panel: #f4f6f8; --rule: #d9dee3; --right: #00694e; --wrong: #a84300; --accent: #0072b2; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #e7eaee; --quiet: #a3adb8; --paper: #14171b; --panel: #1e2329;
    --rule: #343b43; --right: #4fd1a5; --wrong: #ff9a5c; --accent: #6cb8ea; }} }}
* {{ box-sizing: border-box; }}
body {{ margin: 0 auto; max-width: 58rem; padding: 2.5rem 1.25rem 4rem; color: var(--ink);
  background: var(--paper);
  font: 1.0625rem/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }}
h1 {{ font-size: clamp(1.7rem, 5vw, 2.4rem); line-height: 1.15; margin: 0 0 .4rem;
  letter-spacing: -.015em; text-wrap: balance; }}
h2 {{ font-size: 1.3rem; margin: 2.6rem 0 .6rem; }}
h3 {{ font-size: 1.05rem; margin: 1.4rem 0 .5rem; }}
p {{ margin: .5rem 0; max-width: 44rem; }}
.quiet, .caption {{ color: var(--quiet); }}
.caption {{ font-size: .92rem; }}
.verdict {{ border-left: 4px solid var(--accent); background: var(--panel);
  padding: .7rem 1.1rem; margin: 1.5rem 0; border-radius: 0 .5rem .5rem 0; }}
.verdict p {{ font-size: 1.1rem; font-weight: 600; margin: .3rem 0; }}
.verdict .caption {{ font-size: .92rem; font-weight: 400; }}
.picture {{ display: block; width: 100%; height: auto; background: #fff; border-radius: .6rem;
  border: 1px solid var(--rule); }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }}
th, td {{ text-align: right; padding: .4rem .7rem; white-space: nowrap; font-weight: 400; }}
th[scope=col] {{ color: var(--quiet); font-size: .88rem; vertical-align: bottom;
  white-space: normal; }}
th:first-child, th[scope=row], th[scope=col]:nth-child(2) {{ text-align: left; }}
th[scope=rowgroup] {{ font-weight: 700; vertical-align: top; }}
tbody {{ border-top: 1px solid var(--rule); }}
table tbody:last-child {{ border-bottom: 1px solid var(--rule); }}
code, pre {{ font-family: ui-monospace, "Cascadia Mono", Menlo, "DejaVu Sans Mono", monospace;
  font-size: .93em; }}
pre {{ background: var(--panel); border-radius: .5rem; padding: .8rem 1rem; margin: .4rem 0;
  white-space: pre-wrap; overflow-wrap: anywhere; }}
.sample {{ margin: .6rem 0 1rem; }}
.sample figcaption {{ font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .93em;
  overflow-wrap: anywhere; }}
.sample span {{ font: 600 .85rem system-ui, "DejaVu Sans", sans-serif; margin-left: .5rem; }}
.right span {{ color: var(--right); }}
.wrong span {{ color: var(--wrong); }}
@media (max-width: 34rem) {{
  body {{ padding: 1.5rem 1rem 3rem; }} th, td {{ padding: .35rem .4rem; }}
  .picture {{ min-width: 42rem; }} }}
</style>
</head>
<body>
<h1>Does it help to learn from each other?</h1>
<p class="quiet">Potluck's demo with {count}: {compared}.</p>
<div class="verdict">
{verdict}
<p class="caption">One run with one seed: take differences of a few hundredths for noise.</p>
</div>
<p>First, each model practised <strong>alone</strong>: it learned from its own answers only.
Then they practised together with naive sharing, <strong>NoIS</strong>: each learned from
everyone's answers as if it had written them itself.
Last, they shared with <strong>F-TIS</strong>: each reweights the others' answers by how likely
it is to write them itself, and leaves out the bad ones that are far from anything it would
write.</p>
<h2>Accuracy over the rounds</h2>
<div class="scroll">
<img class="picture" alt="{alt}" src="data:image/png;base64,{picture}">
</div>
<h2>In numbers</h2>
<div class="scroll">{table}</div>
<p class="caption">Share of problems solved with greedy writing, on problems that no model
trains on. "Other problems" are of a kind that training does not have (out of distribution),
where they were tried; "filtered" is the share left out by F-TIS, of the answers that
were better or worse than others to the same problem.</p>
{samples}
<h2>How to go on</h2>
<pre>potluck new my-run.toml        # a recipe to edit: your models, your task
potluck run my-run.toml        # train
potluck show runs/my-run       # look at the result, also while it trains</pre>
</body>
</html>
"""
