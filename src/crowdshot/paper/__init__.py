"""The paper's experiments: what to run (`experiments`), running it (`runner`), rows (`store`), tables and figures."""
