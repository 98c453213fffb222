"""What the product, helm and kubectl ask of an API server: one suite, run against the embedded lab and a real one."""
