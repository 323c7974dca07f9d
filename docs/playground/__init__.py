"""The playground: conversations of machines in virtual time, stepped through in a browser.

`world` drives any machine of culm and keeps what came of every step; `scenarios` is the table of
conversations, and `rooms` says how the machines in them are made; `history` is all that as data of
JSON.  Pyodide runs the same files in the browser; `site` puts them into the built pages.
"""
