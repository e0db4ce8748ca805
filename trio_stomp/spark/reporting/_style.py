"""The style of the report, for light and dark mode, for screens and paper.

The six colours can be distinguished by colour-blind people, and have a contrast of 3:1 or more to
their background. Grades also have a symbol, so that none is shown by colour alone.
"""

STYLE = (
    """
:root{color-scheme:light dark;
--bg:#f6f7f9;--card:#fff;--ink:#1b1f24;--soft:#5c6570;--line:#e3e6ea;--grid:#e9ecef;
--c1:#2367c9;--c2:#c2570c;--c3:#0f7b63;--c4:#8a3fb0;--c5:#a3710a;--c6:#b3243f;
--bad:#b3243f;--warn:#b4610b;--note:#4a6580;--good:#0f7b63;
--h1:#e6eefb;--h2:#c9dcf6;--h3:#a5c4ef;--h4:#7ea8e6;--h5:#578bd9;--h6:#346fc8;--h7:#1f54a3;--h8:#123a78}
@media (prefers-color-scheme:dark){:root{
--bg:#14171b;--card:#1c2026;--ink:#e6e9ed;--soft:#9aa4b0;--line:#2c323a;--grid:#2a3038;
--c1:#6ea5ff;--c2:#f39a55;--c3:#45c2a0;--c4:#c58ae6;--c5:#d9b04a;--c6:#ff7a90;
--bad:#ff7a90;--warn:#f0a35c;--note:#9db4cc;--good:#45c2a0;
--h1:#1f2a3b;--h2:#23395a;--h3:#294a7a;--h4:#335f9e;--h5:#4579c2;--h6:#6296dd;--h7:#8cb6f0;--h8:#c4dcff}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1120px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:27px;line-height:1.2;margin:0;letter-spacing:-.01em}
h2{font-size:20px;margin:40px 0 4px}h3{font-size:15px;margin:0}
p{margin:4px 0}.soft,.sub{color:var(--soft)}.sub{font-size:13px;margin:1px 0 8px}
.tiles{display:flex;flex-wrap:wrap;gap:12px;margin:18px 0 8px}
.card,.tile{background:var(--card);border:1px solid var(--line);border-radius:10px}
.tile{flex:1 1 130px;padding:12px 14px}
.tile b{display:block;font-size:25px;line-height:1.25;font-weight:620;letter-spacing:-.01em;
font-variant-numeric:tabular-nums}.tile span{color:var(--soft);font-size:13px}
.tile i{display:block;min-height:1.4em;font-style:normal;font-size:13px;
font-variant-numeric:tabular-nums}
.tile.bad b{color:var(--bad)}.tile.warn b{color:var(--warn)}
.card{padding:14px 16px;margin:12px 0;min-width:0}
.pair{display:grid;grid-template-columns:1fr 1fr;gap:12px}.pair .card{margin:0}
@media (max-width:820px){.pair{grid-template-columns:1fr}}
ul.findings{list-style:none;margin:0;padding:0}
.findings li{display:grid;grid-template-columns:26px 1fr;gap:2px 8px;padding:9px 0;
border-top:1px solid var(--line)}.findings li:first-child{border:0}
.sign{width:22px;height:22px;border-radius:50%;color:var(--card);font-weight:700;font-size:13px;
text-align:center;line-height:22px;align-self:start}
.sign.bad{background:var(--bad)}.sign.warn{background:var(--warn);border-radius:5px}
.sign.note{background:var(--note)}.sign.good{background:var(--good)}
svg{display:block;width:100%;height:auto}
svg text{font:11px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
.tick{fill:var(--soft);font-variant-numeric:tabular-nums}.lane{fill:var(--ink)}
.grid{stroke:var(--grid);fill:none}.limit{stroke:var(--bad);stroke-dasharray:5 4;fill:none}
.line{fill:none;stroke-width:1.6;stroke-linejoin:round;stroke-linecap:round}
.start{stroke:var(--soft);stroke-dasharray:3 3;fill:none}.hole{fill:var(--line)}
.told{fill:transparent}.told:hover{fill:var(--soft);fill-opacity:.13}
svg .bad{fill:var(--bad)}svg .warn{fill:var(--warn)}svg .note{fill:var(--note)}
svg :is(.bad,.warn,.note){rx:3px}
.key{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:13px;color:var(--soft);margin:2px 0 6px}
.key i{display:inline-block;width:14px;height:3px;border-radius:2px;margin-right:6px;
vertical-align:middle}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}
th{font-weight:600;color:var(--soft);text-align:left;border-bottom:1px solid var(--line)}
th,td{padding:6px 10px 6px 0;white-space:nowrap}tr+tr td{border-top:1px solid var(--grid)}
.n{text-align:right}
.meter{display:inline-block;width:120px;height:8px;border-radius:4px;background:var(--grid);
vertical-align:middle;overflow:hidden}.meter i{display:block;height:8px;background:var(--c1)}
.meter.warn i{background:var(--warn)}.meter.bad i{background:var(--bad)}
footer{margin-top:40px;color:var(--soft);font-size:13px}
@media (max-width:560px){main{padding:16px 12px 40px}.card{padding:12px}
svg text{font-size:16px}svg.wide{width:900px;max-width:none}svg.wide text{font-size:13px}}
@media print{.card,.tile{break-inside:avoid}}
"""
    + "".join(
        f".s{n}{{stroke:var(--c{n})}}.f{n}{{fill:var(--c{n})}}.k{n}{{background:var(--c{n})}}"
        for n in range(1, 7)
    )
    + "".join(f".h{n}{{fill:var(--h{n})}}" for n in range(1, 9))
)
