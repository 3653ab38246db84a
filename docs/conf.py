"""Settings of the documentation, which `make docs` builds with Sphinx."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import figures  # noqa: E402  # found on the path above
import gallery  # noqa: E402  # like the line above
from generate import write  # noqa: E402  # like the line above

import halfulp  # noqa: E402  # the checkout, like the line above

if stale := figures.problems():
    raise ValueError("\n".join(["figures differ from the records; `make figures` renews them:", *stale]))

# The tag is that of `make docs ARGS="-t quick"`, which runs no notebook. The plots are drawn by other processes while
# this one writes pages.
quick = "quick" in tags  # noqa: F821  # Sphinx defines tags
with ThreadPoolExecutor(1) as pool:
    plots = pool.submit(gallery.write, HERE / "generated", quick=quick)
    write(HERE / "generated", quick)
    plots.result()

project = "halfulp"
author = project_copyright = "the halfulp authors"
release = version = halfulp.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinxcontrib.bibtex"]
source_suffix = {".md": "myst-nb"}
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off" if quick else "cache"
# The kernel tells the language of cells when it runs them.
suppress_warnings = ["myst-nb.lexer"] if quick else []
nb_execution_cache_path = str(HERE.parent / "build" / "notebooks")
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True
nb_output_stderr = "remove"
bibtex_bibfiles = ["references.bib"]
html_theme = "furo"
html_title = "halfulp"
html_static_path = ["static"]
html_css_files = ["site.css"]
exclude_patterns = ["build"]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
# Fields of a NamedTuple are documented once, in its docstring.
napoleon_use_ivar = True
napoleon_custom_sections = [
    ("Formula", "notes_style"),
    ("Latency", "notes_style"),
    ("Members", "params_style"),
    ("Source", "notes_style"),
]
# Docstrings name parameters, units and modules in backquotes, most of which are no targets of links.
default_role = "code"
