"""From "no Java here" to a Spark session: finding or bringing a JVM, settings, warm starts, and what is missing."""
