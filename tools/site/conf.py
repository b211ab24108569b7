"""Configure Sphinx for the documentation site, which tools/build_site.py builds."""

import pathlib
import sys

from pygments.lexers.python import PythonLexer

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import docstrings

_ROOT = pathlib.Path(__file__).resolve().parents[2]

project = "tfrobust"
project_copyright = "the authors of tfrobust"
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["jupyter_execute"]
# Formulas and outputs are text; blocks of code say their language.
highlight_language = "none"
smartquotes_action = "D"  # dashes; quotes stay as in code

# Docstrings: names in backticks are links if the site has them, and code otherwise.
default_role = "py:obj"
add_module_names = True
autosummary_generate = False
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88
napoleon_numpy_docstring = False
napoleon_use_param = False
napoleon_use_rtype = False
napoleon_custom_sections = [(title, "params_style") for title in docstrings.titles_of_arguments(_ROOT / "tfrobust")]
napoleon_custom_sections += ["Source"]

# Guides: as a forge shows them, so the same anchors of headings, and HTML for the size of a picture.
myst_enable_extensions = ["html_image"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

# Notebooks run anew in each build, in a folder of their own, and an error of one is an error of the build.
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_output_stderr = "remove"  # TensorFlow's messages about the machine

html_theme = "furo"
html_title = "tfrobust"
html_static_path = [str(pathlib.Path(__file__).parent / "site.css")]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False


def on_page(app, name, template, context, doctree):
    """Let the sidebar list the pages of the current section; furo would list those of all sections on each page."""
    toctree = context["toctree"]
    context["toctree"] = lambda **options: toctree(**{**options, "collapse": True})


def setup(app):
    """Connect the conversion of docstrings, and name the language of gin files."""
    app.add_lexer("gin", PythonLexer)
    app.connect("autodoc-process-docstring", docstrings.on_docstring, priority=400)  # before napoleon
    app.connect("html-page-context", on_page, priority=400)  # before furo
    app.connect("autodoc-process-signature", docstrings.on_signature)
    app.connect("autodoc-process-bases", docstrings.on_bases)
