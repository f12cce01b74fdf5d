"""The one error a user of this package meets."""


class InputError(Exception):
    """A mistake in what the user handed over: a file, a tensor, a key or an option.

    The message is one line that names the file, tensor or key, what was found and what was expected.
    Command lines print it alone, without a traceback, and exit with 2.
    """
