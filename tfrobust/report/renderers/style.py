"""The style sheet of all HTML pages: light and dark, phone, screen and paper."""

from tfrobust.report.blocks.palette import declarations

LIGHT_PAGE, DARK_PAGE = "#f6f7f9", "#111418"
_LIGHT = f"--page:{LIGHT_PAGE};--card:#ffffff;--edge:#dfe3e8;--text:#1b1f24;--muted:#5b6470;--accent:#0b62c4;"
_LIGHT += "--order:#3d4653;--order-soft:#e8ebf0;--care:#7a5200;--care-soft:#fcefcf;--bad:#a3201d;--bad-soft:#fbe1df;"
_DARK = f"--page:{DARK_PAGE};--card:#191d23;--edge:#2d333b;--text:#e7eaee;--muted:#9aa4b0;--accent:#6cb2ff;"
_DARK += "--order:#c3cad4;--order-soft:#262c35;--care:#eec35f;--care-soft:#3a2d0d;--bad:#ff9a93;--bad-soft:#431a18;"

_RULES = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--text);font:16px/1.55 system-ui,-apple-system,"Segoe UI",
Roboto,
"Helvetica Neue","Noto Sans","Liberation Sans",Arial,sans-serif;overflow-wrap:break-word}
main{max-width:1040px;margin:0 auto;padding:28px 20px 60px}
main:has(.report){max-width:1240px}
@media screen and (min-width:1100px){.report{display:grid;grid-template-columns:172px minmax(0,1fr);gap:0 28px}
.report>*{grid-column:2}.report>nav{grid-column:1;grid-row:1/3;position:sticky;top:28px;align-self:start;
max-height:calc(100vh - 56px);overflow-y:auto}nav .contents{flex-direction:column;flex-wrap:nowrap}
.contents li{max-width:172px}}
.eyebrow{margin:0;color:var(--muted);font-size:13px;letter-spacing:.08em;text-transform:uppercase}
h1{margin:2px 0 10px;font-size:32px;line-height:1.2;letter-spacing:-.01em}
h1 small{font-weight:400;font-size:18px;color:var(--muted);letter-spacing:0;white-space:nowrap}
h2{margin:0 0 4px;font-size:20px;line-height:1.3;letter-spacing:-.005em}
h2+p:not(.lead){margin-top:10px}
h3{margin:18px 0 4px;font-size:15px}
p{margin:0 0 10px;max-width:74ch}
a{color:var(--accent)}
.summary{font-size:14px;color:var(--muted);margin:0 0 16px;max-width:none}
.opening{display:grid;grid-template-columns:minmax(0,1fr);gap:10px 28px;background:var(--card);
border:1px solid var(--edge);border-radius:12px;padding:18px 22px;margin:0 0 14px}
.answer{font-size:21px;line-height:1.35;font-weight:650}
.opening p:last-child{margin-bottom:0}
.checks{display:inline-block;border-radius:8px;padding:4px 12px;font-size:14px}
.answer span{font-weight:400;font-size:17px;color:var(--muted);white-space:nowrap}
.untried{color:var(--muted);font-size:14px}
.pair{align-self:center}.pair svg.plot{max-width:420px}
@media (min-width:820px){.opening:has(.pair){grid-template-columns:minmax(0,1fr) minmax(0,42%)}}
.finding{font-weight:600;margin-bottom:4px}
.lead{color:var(--muted);margin-bottom:14px}
nav .contents{margin:0 0 14px}
.contents{display:flex;flex-wrap:wrap;gap:2px 16px;list-style:none;padding:2px 0;font-size:14px;line-height:1.35}
.contents li{margin:0;padding:3px 0}
.contents a{text-decoration:none}
.contents a:hover{text-decoration:underline}
section{background:var(--card);border:1px solid var(--edge);border-radius:12px;padding:20px 22px;
margin:0 0 18px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(176px,1fr));gap:14px;margin:0 0 18px}
.tile{background:var(--card);border:1px solid var(--edge);border-radius:12px;padding:14px 18px 16px}
.tile .bar{margin:6px 0}
.tile b{display:block;font-size:32px;line-height:1.2;font-weight:650;font-variant-numeric:tabular-nums}
.tile span,.tile i{display:block;font-style:normal;font-size:14px;color:var(--muted)}
.tile span{color:var(--text)}
.bar{display:block;position:relative;height:7px;border-radius:3px;background:var(--faint);margin:3px 0;
min-width:110px;overflow:hidden}
.bar u{position:absolute;left:0;top:0;bottom:0}
.bar s{position:absolute;top:0;bottom:0;background:var(--strong);opacity:.38}
.scroll{overflow-x:auto;margin:0 -6px}
table{border-collapse:collapse;width:100%;font-size:15px}
th,td{text-align:left;vertical-align:top;padding:8px 6px;border-bottom:1px solid var(--edge)}
th{font-size:13px;font-weight:600;color:var(--muted);vertical-align:bottom}
tr:last-child td{border-bottom:0}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
th.number{white-space:normal}
td{overflow-wrap:anywhere}
td small{color:var(--muted);font-size:13px;display:block;white-space:normal}
.dense td.number small{display:inline-block;margin-left:8px;text-align:right;white-space:nowrap}
.rest{display:inline-block;font-style:normal;text-align:left;white-space:pre-wrap}
.dense table{font-size:14px}.dense td small{font-size:12px}.dense td{padding:4px 6px}
td.name{width:34%}
.dense td.name{width:auto;min-width:58px}.dense td.name small{max-width:24ch}
.heat{display:block;padding:2px 6px;border-radius:4px}
figure.sentence{max-width:none;margin:0 0 18px}
.tokens{max-width:none;margin:0 0 6px}
.tokens b{display:block;font-size:13px;font-weight:400;color:var(--muted)}
.tokens .heat{display:inline-block}
.key{font-size:13px;color:var(--muted);margin-bottom:14px}
code,pre,.hash{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace}
.hash{overflow-wrap:anywhere}
pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:10px 0 0;padding:14px;border-radius:8px;
background:var(--page)}
.figures{display:flex;flex-wrap:wrap;gap:26px}
.figures>*{flex:1 1 400px;min-width:min(100%,260px);max-width:100%}
.figures>figure{max-width:560px}
.figures>.dense{flex:1 1 auto;align-self:center;min-width:0}
.figures+*,section>.dense+.dense{margin-top:20px}
.tile .badge{white-space:normal}
figure{margin:0;min-width:0;break-inside:avoid}
figure svg.plot{display:block;width:100%;max-width:560px;height:auto;overflow:visible}
svg.plot *{stroke-linejoin:round;stroke-linecap:butt}
svg.plot text{font-family:inherit}
svg.plot g[id*="-class-"] text{paint-order:stroke;stroke:var(--card);stroke-width:3px;stroke-linejoin:round}
figcaption{font-size:14px;font-weight:600;margin:0 0 4px}
.legend{display:flex;flex-wrap:wrap;gap:2px 16px;margin:4px 0 0;padding:0;list-style:none;font-size:13px;
color:var(--muted)}
.legend svg{vertical-align:-1px;margin-right:5px}
details{margin-top:10px;font-size:14px}
summary{cursor:pointer;color:var(--accent)}
.badge{display:inline-block;border-radius:20px;padding:1px 10px;font-size:13px;font-weight:600;
white-space:nowrap;font-style:normal}
.pass{color:var(--order);background:var(--order-soft)}
.warn{color:var(--care);background:var(--care-soft)}
.fail{color:var(--bad);background:var(--bad-soft)}
ul{margin:0;padding-left:20px}
li{margin:3px 0;max-width:74ch}
.note{border-left:4px solid var(--care);padding:6px 12px;background:var(--care-soft);color:var(--care);
border-radius:0 8px 8px 0;margin:0 0 8px;max-width:none}
.note summary{color:inherit}
footer{color:var(--muted);font-size:13px}
@media (max-width:560px){main{padding:18px 12px 40px}h1{font-size:clamp(20px,6vw,26px)}.answer{font-size:19px}
.opening{padding:14px}
section{padding:16px 14px}.tiles{grid-template-columns:1fr 1fr;gap:10px}.tile{padding:12px}
.tile b{font-size:25px}
td.name{width:auto}
.bar{min-width:56px}.dense table{font-size:13px}.dense th{font-size:11px}
.dense th,.dense td{padding:3px 2px}.dense .heat{padding:2px 1px}
.dense td.number small{display:block;margin:0;min-width:0!important;font-size:11px}
.stack thead{display:none}.stack,.stack tbody,.stack tr,
.stack td{display:block}
.stack td{border:0;padding:1px 6px}.stack tr{padding:10px 0;border-bottom:1px solid var(--edge)}
.stack tr:last-child{border-bottom:0}.stack td.number{text-align:left}
.stack td[data-head]::before{content:attr(data-head) ": ";color:var(--muted)}}
@media print{body{background:#fff;font-size:10.5pt}main{max-width:none;padding:0}details:not(.whole){display:none}
details.whole summary{display:none}details.whole::details-content{content-visibility:visible;block-size:auto}
.tiles{grid-template-columns:repeat(auto-fit,minmax(112px,1fr));gap:8px}.tile{padding:10px}.tile b{font-size:20pt}
.tile i,.tile span{font-size:8.5pt}nav{display:none}table,.lead{font-size:9.5pt}
td,th{padding:4px 6px}td small{font-size:8pt}
pre,code,.hash{font-size:7pt}pre{padding:0;columns:2}
details.whole table{font-size:8pt}details.whole td{padding:2px 6px}.figures{gap:14px 20px}
.figures>figure{flex-basis:300px;max-width:400px}
.opening{grid-template-columns:minmax(0,1fr) minmax(0,40%);break-inside:avoid}.answer{font-size:14pt}
section,.tile{border-color:#ccc}section{padding:12px 14px;margin:0 0 12px;-webkit-box-decoration-break:clone;
box-decoration-break:clone}
.tile,tr,.finding,.lead,.legend{break-inside:avoid}h2,h3,.finding,.lead,figcaption{break-after:avoid}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}}
"""

STYLE = (
    f":root{{color-scheme:light dark;{_LIGHT}{declarations(dark=False)}}}"
    f"@media screen and (prefers-color-scheme:dark){{:root{{{_DARK}{declarations(dark=True)}}}}}{_RULES}"
)
# For a part of another page, such as a notebook: no rule holds outside of the element.
NESTED_STYLE = (
    f".tfrobust{{color-scheme:light;{_LIGHT}{declarations(dark=False)}color:var(--text);background:var(--page);"
    f"font:16px/1.5 system-ui,sans-serif;padding:14px;max-width:1000px;{_RULES}}}"
)
