"""Class pools and crowds to train on and to test with, one source a file."""
