"""What the site adds to Sphinx, one idea a file."""
