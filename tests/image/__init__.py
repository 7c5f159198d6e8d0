#: headers of a client that leaves the server no open connection to wait for when it stops
NO_KEEPALIVE = {"Connection": "close"}
