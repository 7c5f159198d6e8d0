"""The headers that every response has, also one that gunicorn writes before the app knows of the request.

Only the standard library stands here, as everywhere in `boot/` but in `boot/worker.py`.
"""

#: no response but that of `/docs` is a page, and no page may show or load one
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
