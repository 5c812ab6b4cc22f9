"""What the subcommands share: parsers and arguments, the machine that is looked at, running without a screen."""
