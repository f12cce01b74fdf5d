"""The error a user of this package meets, and what is raised where the code under test fell over."""


class InputError(Exception):
    """A mistake in what the user handed over: a file, a tensor, a key or an option.

    The message is one line that names the file, tensor or key, what was found and what was expected.
    Command lines print it alone, without a traceback, and exit with 2.
    """


class FellOver(BaseException):
    """Code that is not ours crashed, hung, passed its memory limit or broke the contract.

    No ``Exception``: that is how an implementation refuses its input, which some claims ask for, and falling
    over must never pass for a refusal. The message is one line that names the implementation, what it was
    doing and how it ended.
    """
