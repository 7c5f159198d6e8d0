raise ModuleNotFoundError("a server whose sandboxes are containers is started with WITH_DOCKER")
