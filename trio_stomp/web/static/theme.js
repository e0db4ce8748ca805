// The theme that was chosen here before, applied before anything is painted.
"use strict";

(() => {
  try {
    const theme = localStorage.getItem("theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // No storage, no memory: the system's theme it is.
  }
})();
