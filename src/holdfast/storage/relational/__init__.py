"""What the relational engines have in common: everything but their SQL, their connections and their locks."""
