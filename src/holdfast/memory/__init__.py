"""The seven kinds of memory: what each can do beyond being added and recalled."""
