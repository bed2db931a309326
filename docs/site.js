// Browsers allow the search no worker on pages opened from disk: better no box than one that never answers.
if (location.protocol === "file:") document.documentElement.classList.add("from-disk");
