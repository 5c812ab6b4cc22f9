"""What the subcommands have in common: parsers and arguments, the machine that is looked at, running without a screen."""
