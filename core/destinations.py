"""What a destination is called: a lower-case DNS name and a port, and what a rule for destinations names."""

#: most characters of a name. Source: RFC 1035, 2.3.4
MOST_NAME = 253

#: a lower-case DNS name of at most 63 characters a label, whose last label is not of digits alone: never an address
NAME = r"(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*(?!\d+$|0x[0-9a-f]*$)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"

#: what a rule names: a name, or `*.` and a suffix of at least two labels
PATTERN = rf"(?:\*\.(?=[^.]+\.))?{NAME}"
