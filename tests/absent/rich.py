raise ImportError("only the tests' tools need it")
