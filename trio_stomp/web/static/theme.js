// Applies the stored theme before the first paint.
"use strict";

(() => {
  try {
    const theme = localStorage.getItem("theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Without storage, the system's theme applies.
  }
})();
