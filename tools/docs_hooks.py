"""Two things that mkdocs does not do: notebooks as pages, and links to files of the repository."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]+)\]\((?P<target>[^)#\s:]+)(?P<anchor>#[^)\s]*)?\)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """A page for every notebook; the notebook itself stays beside it, to be downloaded."""
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        text = as_markdown(json.loads(file.content_string), Path(file.src_uri).name)
        files.append(File.generated(config, file.src_uri.removesuffix(".ipynb") + ".md", content=text))
    return files


def as_markdown(notebook: dict[str, Any], name: str) -> str:
    """The cells one after the other; outputs are not kept in the repository, so there are none."""
    first, *rest = [_cell(cell) for cell in notebook["cells"]]
    note = f"*This page is the notebook <a href='../{name}' download>{name}</a>, without its outputs.*"
    return "\n\n".join([first, note, *rest]) + "\n"


def _cell(cell: dict[str, Any]) -> str:
    source = "".join(cell["source"])
    return source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```"


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links that are right on a code host, made right on the site.

    A notebook's becomes its page's. That of a file outside docs/ goes to the repository where `repo_url`
    names it, and is plain text otherwise. A target that does not exist is left alone: mkdocs complains then.
    """
    docs, root = Path(config.docs_dir), Path(config.docs_dir).parent
    here = (docs / page.file.src_uri).parent

    def mended(link: re.Match[str]) -> str:
        target = (here / link["target"]).resolve()
        if target.suffix == ".ipynb":
            return link[0].replace(".ipynb", ".md")
        known = target.is_relative_to(docs) and target.is_file()
        if known or not target.exists() or not target.is_relative_to(root):
            return link[0]
        if config.repo_url:
            return f"[{link['text']}]({config.repo_url.rstrip('/')}/blob/main/{target.relative_to(root)})"
        return link["text"]

    return LINK.sub(mended, markdown)
