raise ImportError("only Selenium needs it")
