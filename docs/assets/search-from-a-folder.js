// SPDX-License-Identifier: Apache-2.0
// A page that is opened from a folder may start no worker, and the search of the site is one. This runs it in a frame
// that nobody sees. On a server it does nothing.
if (location.protocol === "file:") {
  class FrameWorker extends EventTarget {
    constructor(url) {
      super();
      const early = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      this.postMessage = (data) => early.push(data);
      this.terminate = () => frame.remove();
      frame.addEventListener("load", () => {
        const inside = frame.contentWindow;
        inside.postMessage = (data) => {
          const told = new MessageEvent("message", { data });
          this.dispatchEvent(told);
          if (this.onmessage) this.onmessage(told);
        };
        inside.importScripts = () => { throw new Error("the search needs no other scripts"); };
        const script = inside.document.createElement("script");
        script.src = url;
        script.onload = () => {
          this.postMessage = (data) => inside.dispatchEvent(new MessageEvent("message", { data }));
          early.splice(0).forEach(this.postMessage);
        };
        inside.document.head.append(script);
      }, { once: true });
      document.body.append(frame);
    }
  }
  window.Worker = FrameWorker;
  window.IFrameWorker = FrameWorker;
}
