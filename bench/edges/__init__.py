"""What the service, the console and the command line take."""
