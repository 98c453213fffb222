"""The table of finding codes. Codes are stable: tools branch on them. Pure data; `docs/findings.md` is made from it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Code:
    """`severity` is the default: `error`, `warning` or `info`. `fix` is shown where a finding gives none of its own.
    `lasts` where waiting mends nothing: somebody must act. Where the same code may also come from what is still on its
    way (a young node, a slow cloud, an API that comes up), it is False."""

    area: str
    severity: str
    meaning: str
    fix: str
    lasts: bool = False


_Row = tuple[str, str, str] | tuple[str, str, str, bool]


def _area(area: str, rows: dict[str, _Row], *, lasts: bool = False) -> dict[str, Code]:
    """`lasts` holds for the rows that don't say."""
    return {code: Code(area, *row[:3], row[3] if len(row) > 3 else lasts) for code, row in rows.items()}


E_, W_, I_ = "error", "warning", "info"
LASTS = True

_MANIFESTS = _area(
    "Manifests",
    {
        "FileUnreadable": (
            E_,
            "A file or folder can't be read; it is skipped.",
            "Give read permission, or remove it from the fleet.",
        ),
        "NotUtf8": (E_, "A file isn't UTF-8; it is skipped.", "Save the file as UTF-8."),
        "BrokenLink": (W_, "A link leads nowhere; it is skipped.", "Repair or remove the link."),
        "LoopingLink": (W_, "A link leads back to a folder already read; it is skipped.", "Remove the link."),
        "NothingFound": (E_, "A path holds no manifest.", "Name a file or folder that holds YAML manifests."),
        "ManifestTooLarge": (E_, "A document is over 4 MiB.", "Split the document."),
        "InvalidYaml": (E_, "A document isn't YAML.", "Correct the syntax at the place shown."),
        "DuplicateKey": (E_, "A mapping holds a key twice.", "Keep one of them."),
        "TooManyAliases": (E_, "Anchors and aliases expand beyond bounds.", "Write the values out."),
        "NestedTooDeep": (E_, "A document is nested beyond bounds.", "Flatten the document."),
        "NotAnObject": (
            E_,
            "A document isn't a Kubernetes object: apiVersion, kind or metadata.name is missing or of a wrong type.",
            "Give apiVersion, kind and metadata.name.",
        ),
        "UnknownKind": (
            E_,
            "The group modelplane.ai/v1alpha1 has no such kind.",
            "Correct the kind or the apiVersion.",
        ),
        "ForeignKind": (
            I_,
            "An object of another API group; it is skipped.",
            "Nothing to do; apply it with the tool it belongs to.",
        ),
        "NotActedOn": (I_, "The kind is validated, and this version doesn't act on it yet.", "Nothing to do."),
        "UnknownField": (E_, "The kind has no such field.", "Correct the name, or remove the field."),
        "WrongType": (E_, "A value has the wrong type.", "Give a value of the type shown."),
        "MissingField": (E_, "A required field is missing.", "Add the field."),
        "InvalidValue": (E_, "A value is outside what the field allows.", "Give a value that the field allows."),
        "RuleViolated": (E_, "Fields contradict each other.", "Change the fields as the message says."),
        "InvalidName": (E_, "A name breaks its Kubernetes or cloud limit.", "Choose a name within the limit shown."),
        "InvalidQuantity": (
            E_,
            "A value isn't a Kubernetes quantity.",
            "Write it as Kubernetes does, such as 16Gi or 500m.",
        ),
        "InvalidVersion": (
            E_,
            "A value isn't a version of the form its field takes.",
            "Write the version in the form shown.",
        ),
        "InvalidSelector": (E_, "A CEL selector doesn't compile.", "Correct the expression."),
        "ImageWithoutTag": (
            W_,
            "An image reference has neither tag nor digest, so what runs can change by itself.",
            "Add a tag or a digest.",
        ),
        "DuplicateName": (E_, "Two different objects have one kind and name.", "Rename or remove one of the two."),
        "ClassNotFound": (E_, "A pool names a class that no manifest holds.", "Add the class, or correct className."),
        "ClassInvalid": (E_, "A pool names a class whose manifest is invalid.", "Correct the class first."),
        "ClusterInvalid": (
            E_,
            "The cluster's manifest is invalid, so nothing about it is changed.",
            "Correct the manifest.",
        ),
        "ProviderMismatch": (
            E_,
            "A class is for another provider than its cluster.",
            "Use a class of the cluster's provider, or one without provisioning on an Existing cluster.",
        ),
        "ProvisioningMissing": (
            E_,
            "A class has no provisioning block, and its cluster provisions nodes.",
            "Add spec.provisioning for the cluster's provider.",
        ),
        "KubeconfigMissing": (
            E_,
            "The kubeconfig isn't where the secret reference says.",
            "Put it there, or correct spec.cluster.existing.secretRef.",
        ),
        "KubeconfigInvalid": (
            E_,
            "The kubeconfig is empty, isn't a kubeconfig, or holds no cluster.",
            "Replace it with a kubeconfig that names a cluster, a user and a current context.",
        ),
    },
    lasts=LASTS,
)

_GATE = _area(
    "Gate",
    {
        "UnsupportedDevices": (
            E_,
            "A class claims a driver that the cluster's source doesn't support.",
            "Use hardware that the source drives, or run the cluster on a source that supports the driver.",
        ),
        "FabricRequired": (E_, "A pool claims dra.net without the fabric that brings it.", "Set the pool's fabric."),
        "UnsupportedKubernetesVersion": (
            E_,
            "The declared Kubernetes version can't run what is claimed or is below the source's floor.",
            "Raise kubernetesVersion.",
        ),
        "VersionUnknown": (
            I_,
            "The version isn't declared, so what depends on it is decided on the cluster.",
            "Nothing to do.",
        ),
        "MixedGpuVendors": (E_, "One class claims GPUs of two vendors.", "Make one class a vendor."),
        "AcceleratorRequired": (
            E_,
            "A class claims a GPU driver without an accelerator, where the cloud attaches GPUs through it.",
            "Add accelerator to the class's provisioning block.",
        ),
        "AcceleratorUnclaimed": (
            E_,
            "A class has an accelerator that no claimed GPU driver serves.",
            "Claim the GPU's driver, or remove accelerator.",
        ),
        "RoleNone": (
            W_,
            "A class claims neither a GPU driver nor dra.cpu, so nothing but what its drivers publish can be scheduled there.",
            "Add the device that the pool is meant for.",
        ),
        "ClaimTooLarge": (
            E_,
            "A claim would need more devices than one claim can hold (32).",
            "Ask for less, split the class, or use Kubernetes 1.36 or newer for grouped CPUs.",
        ),
        "CpuNotAllocatable": (
            E_,
            "A pod that mirrors a full CPU claim can't fit beside the daemons of its node.",
            "Reserve more CPUs for the driver, or declare a smaller capacity.cpu.",
        ),
        "PoolRoleChanged": (
            E_,
            "A running pool would lose a driver or change its role.",
            "Make a new pool of the new class, move the work, then prune the old pool.",
        ),
        "CredentialsUnmapped": (
            E_,
            "The cluster names credentials that no ClusterProviderConfig of the fleet maps.",
            "Add the ClusterProviderConfig, or use default.",
        ),
        "AccountChanged": (
            E_,
            "A known cluster would be looked for in another account.",
            "Restore the credentials, or make a new cluster under a new name.",
        ),
        "ZonesRequired": (E_, "The cloud needs zones for a GPU pool.", "Set the pool's zones."),
        "FabricUnsupported": (E_, "The source has no such fabric.", "Remove the fabric, or use a source that has it."),
        "CapacityBlockUnsupported": (
            E_,
            "The source has no capacity blocks.",
            "Remove capacityBlock, or use a source that has them.",
        ),
        "MinNodesUnsupported": (E_, "The cloud can't hold a pool at that size.", "Raise minNodeCount or nodeCount."),
        "CountNotSpread": (
            E_,
            "The cloud counts nodes for each zone, and the pool's count doesn't divide over its zones.",
            "Choose a multiple of the number of zones.",
        ),
        "CountOutOfBounds": (
            E_,
            "A pool's node counts contradict each other.",
            "Keep minNodeCount <= nodeCount <= maxNodeCount.",
        ),
        "ScaleFromZero": (
            W_,
            "A pool at zero nodes never wakes for a DRA claim on this cloud.",
            "Set minNodeCount to 1.",
        ),
        "AutoscalerMissing": (
            W_,
            "The pool's bounds differ and nothing on the cluster acts on them.",
            "Add the cluster-autoscaler, or set the bounds equal.",
        ),
        "InstanceMismatch": (
            E_,
            "The machine type contradicts the pool's role.",
            "Choose a machine type with the hardware that the class declares.",
        ),
        "ExternalDriverClash": (
            E_,
            "An external driver is declared twice or with a kind that contradicts the driver table.",
            "Correct spec.cluster.existing.externalDrivers.",
        ),
    },
    lasts=LASTS,
)

_JOIN = _area(
    "Component lists",
    {
        "UnknownSource": (
            E_,
            "No component list exists for the source.",
            "Use one of the sources that the drivers command lists.",
        ),
        "UnknownStack": (E_, "No such serving stack.", "Use Standard."),
        "DuplicateComponent": (E_, "Two lists hold one key or release.", "Remove one of the two."),
        "DependencyMissing": (
            E_,
            "A component depends on one that isn't in the lists, or that the join dropped.",
            "Add the dependency, or remove it from dependsOn.",
        ),
        "DependencyCycle": (E_, "Components depend on each other in a circle.", "Remove one of the dependencies."),
        "DependencyForeign": (
            E_,
            "A component depends on another driver's component.",
            "Give the component a non-empty subset of the dependency's tags.",
        ),
        "KeylessToleration": (E_, "A toleration without a key tolerates every taint.", "Name the taint keys."),
        "LimitExceeded": (E_, "A label, name or namespace breaks its Kubernetes limit.", "Shorten it."),
        "UnknownValuesPath": (E_, "A component sets a value that its chart doesn't read.", "Correct the path."),
        "WrongValuesType": (E_, "A component sets a value of the wrong type.", "Give a value of the type shown."),
        "PublishedTwice": (E_, "Two components of a list publish one driver.", "Keep one publisher a driver."),
        "PublisherDropped": (
            E_,
            "A component publishes a claimed driver, and its tags leave it out.",
            "Add the driver to the component's tags.",
        ),
        "OverlayInvalid": (
            E_,
            "The site's component overlay names an unknown component or field.",
            "Correct the overlay.",
        ),
    },
    lasts=LASTS,
)

_AUDIT = _area(
    "Audits",
    {
        "StackMissesPool": (
            E_,
            "A node-level workload doesn't run on a node that it must serve.",
            "Correct the workload's selectors and tolerations, or the node's labels and taints.",
        ),
        "StackStrays": (
            E_,
            "A node-level workload runs on a node that it must stay off.",
            "Narrow the workload's selectors, or remove the label that draws it there.",
        ),
        "TolerationTooBroad": (
            E_,
            "A toleration lets a pod of ours onto a pool that it needn't reach.",
            "Name only the keys of the pools it serves.",
            LASTS,
        ),
        "ToleratesEverything": (E_, "A pod of ours tolerates every taint.", "Name the taint keys.", LASTS),
        "ForeignTolerates": (I_, "A pod that isn't ours tolerates every taint.", "Nothing to do; its owner decides."),
        "PlanDisagrees": (
            E_,
            "The plan and the cluster disagree on where a workload may run.",
            "Correct the chart or its declaration so that both say the same.",
        ),
        "UndeclaredWorkload": (
            E_,
            "A release of ours runs a node-level workload that no declaration names.",
            "Declare it, or turn it off in the values.",
            LASTS,
        ),
        "SecondNfd": (
            E_,
            "Two Node Feature Discoveries label one cluster.",
            "Remove the one that isn't ours, or turn off the operator's own.",
            LASTS,
        ),
        "DevicePluginBesideDra": (
            E_,
            "A device plugin and a DRA driver hand out the same devices.",
            "Turn the device plugin off on that pool.",
            LASTS,
        ),
        "SecondOwner": (E_, "Two owners serve one driver or DeviceClass.", "Remove one of the two.", LASTS),
        "DeviceClassMissing": (
            E_,
            "The DeviceClass that a class claims its devices through isn't on the cluster.",
            "Reconcile the component that brings it, or correct deviceClassName in the class.",
        ),
        "DeviceClassMismatch": (
            E_,
            "A DeviceClass doesn't select the devices that the driver publishes.",
            "Correct the selectors of the DeviceClass, or deviceClassName in the class.",
            LASTS,
        ),
        "PodSecurityRefuses": (
            E_,
            "The namespace of a node plugin enforces a pod security level that refuses its pods.",
            "Label the namespace privileged with the command shown.",
            LASTS,
        ),
        "PortClash": (E_, "Two host-network workloads on one node share a port.", "Change one workload's port.", LASTS),
        "QuotaMissing": (
            E_,
            "Pods of a system priority class are refused without a ResourceQuota in their namespace.",
            "Add the quota for the two system priority classes.",
        ),
        "HookHasNoRoom": (
            E_,
            "A chart's hook Job finds no node where it may run.",
            "Keep one node free of pool taints.",
        ),
        "NoRoomForControllers": (
            E_,
            "Every node carries a pool's taint, so controllers and upgrade hooks would hang.",
            "Add a node without pool taints.",
        ),
        "ConfigNotApplied": (
            E_,
            "A chart keeps an old custom resource after an upgrade.",
            "Manage the resource outside the chart.",
            LASTS,
        ),
        "DriverPathMixed": (
            E_,
            "Two ways to bring the NVIDIA driver on GKE exclude each other.",
            "Keep one of the two.",
            LASTS,
        ),
        "LabelMissing": (E_, "A node lacks a label that its pool needs.", "Set the label with the command shown."),
        "TaintMissing": (
            W_,
            "A node lacks a taint that its pool should carry; controllers may land there.",
            "Set the taint with the command shown.",
            LASTS,
        ),
        "LabelDrift": (
            E_,
            "A pool's labels or taints on the cloud differ from the plan.",
            "Reconcile; where the cloud can't change them in place, make a new pool.",
        ),
    },
)

_HEALTH = _area(
    "Health",
    {
        "DaemonMissing": (
            E_,
            "The driver's daemon doesn't run on a node of the pool.",
            "Look at the daemon's selectors, tolerations and events.",
        ),
        "DriverNotReady": (
            E_,
            "The driver's daemon on a node isn't ready.",
            "Look at the pod's logs and init containers.",
        ),
        "SliceMissing": (
            E_,
            "No ResourceSlice of the driver reaches a node.",
            "Look at the driver's logs: it sees no hardware, or can't publish.",
        ),
        "SliceIncomplete": (
            E_,
            "The newest slice pool of the driver isn't complete.",
            "Wait for the driver; if it lasts, restart its daemon on that node.",
        ),
        "DevicesMissing": (
            E_,
            "A node publishes fewer devices than its class declares.",
            "Correct the class, or look for failed hardware.",
        ),
        "ClassDiffers": (
            W_,
            "A class declares attributes or capacity that the slices don't show.",
            "Declare what the driver reports.",
            LASTS,
        ),
        "ClaimNotMirrored": (
            W_,
            "A pod claims CPUs that it doesn't request, so the scheduler gives them to others as well.",
            "Give the pod CPU requests and limits equal to its claim.",
            LASTS,
        ),
        "FieldDropped": (
            W_,
            "The server drops a field silently, because its feature gate is off.",
            "Nothing to do in individual mode; otherwise turn the gate on.",
            LASTS,
        ),
        "PoolPending": (W_, "A pool has nodes and none can be judged yet.", "Wait for a node to become ready."),
        "PoolIdle": (I_, "A pool stands at zero nodes.", "Nothing to do."),
        "NodesMissing": (W_, "A pool has fewer nodes than it should.", "Wait, or look at the cloud's events."),
    },
)

_RUN = _area(
    "Reconciling",
    {
        "Pending": (W_, "Something is asked for and not there yet.", "Wait; the next pass goes on from here."),
        "NoCapacity": (W_, "The cloud has no such machine now.", "Wait, or choose another zone or size."),
        "QuotaExceeded": (E_, "The account's quota doesn't allow it.", "Raise the quota named in the message.", LASTS),
        "Throttled": (W_, "The cloud asks to slow down.", "Wait; it is asked again with growing pauses."),
        "CredentialsRefused": (E_, "The cloud or cluster refuses the credentials.", "Correct or renew them."),
        "CredentialPluginFailed": (
            E_,
            "The kubeconfig's credential plugin gave no credentials.",
            "Run `kubectl get nodes` with the kubeconfig and see what the plugin says; its words aren't repeated here.",
        ),
        "CertificateExpired": (
            E_,
            "A certificate between us and the cluster's API has expired, or isn't valid yet.",
            "Renew the certificate that is named, and check the clock of this host.",
        ),
        "ServerNotTrusted": (
            E_,
            "The API's certificate isn't signed by the kubeconfig's authority, or is for another name.",
            "Put the cluster's own authority into the kubeconfig, or set tls-server-name.",
        ),
        "PermissionMissing": (
            E_,
            "The kubeconfig's user may not do what is needed.",
            "Grant its user what the message names; installing needs cluster-admin in practice.",
        ),
        "RequestRejected": (E_, "The cloud rejects the request as written.", "Edit the manifest as the message says."),
        "NameTaken": (E_, "The name exists and isn't ours.", "Choose another name, or remove the other object.", LASTS),
        "ReadFailed": (E_, "A read failed, so nothing is concluded from it.", "Look at the API named in the message."),
        "WriteRefused": (
            E_,
            "The cluster's API didn't take a change.",
            "Look at the message: an admission webhook, a quota or a permission; the next pass asks again.",
        ),
        "WebhookDown": (
            E_,
            "An admission webhook of others doesn't answer, and the API takes no change without it.",
            "Bring the webhook's service back, or have its owners change their webhook configuration; we never go round it.",
        ),
        "NamespaceTerminating": (
            W_,
            "A namespace that something is to be made in is being deleted.",
            "Remove what is named, or its finalizer where its controller is gone; the next pass goes on from there.",
        ),
        "InstallFailed": (E_, "A component's release failed.", "Look at the message and the objects it names."),
        "ComponentsConflict": (
            E_,
            "Another field manager owns a field that we set; it is never taken by force.",
            "Have the manager named let go of the field, or give the component the same value in MODELPLANE_COMPONENTS.",
            LASTS,
        ),
        "ClusterBusy": (E_, "Another writer works on the cluster.", "Wait for the holder named, or stop it."),
        "LeaseLost": (
            E_,
            "Another writer took the cluster over while this run stood still; the run changes nothing there any more.",
            "Run again: a new run reads what the other one did, and the manifests as they are now.",
        ),
        "Orphan": (
            W_,
            "Something of ours still runs and no manifest asks for it.",
            "Prune it with the command shown, or restore its manifest.",
            LASTS,
        ),
        "InUse": (E_, "What would be deleted is in use.", "Move the users away first.", LASTS),
        "FingerprintStale": (
            E_,
            "The subject changed since its fingerprint was printed.",
            "Run prune again without a fingerprint and read what it prints.",
            LASTS,
        ),
        "ReloadNeeded": (
            W_,
            "The manifests changed since the code location was loaded.",
            "Reload the code location.",
            LASTS,
        ),
    },
)

_MODELS = _area(
    "Deployments",
    {
        "NoPoolMatches": (
            E_,
            "No pool satisfies a member's device requests.",
            "Relax the selectors, or add a pool with such devices.",
            LASTS,
        ),
        "NoNodesFree": (W_, "Pools match, and none has enough free nodes.", "Scale the pool, or lower the replicas."),
        "NoClusterMatches": (
            E_,
            "No cluster satisfies the clusterSelector.",
            "Correct the labels of the selector or of the clusters.",
            LASTS,
        ),
        "ClusterTainted": (
            E_,
            "Pools match, and each cluster that has them carries a taint of its own that the deployment doesn't tolerate.",
            "Take the taint off the cluster, or add the toleration to the deployment's template.",
            LASTS,
        ),
        "ClusterNotReady": (
            W_,
            "A cluster that would match is refused or can't be read.",
            "Look at that cluster's findings.",
        ),
        "SelectorError": (
            E_,
            "A selector fails when it is evaluated, which aborts the allocation.",
            "Guard the field with has(), or select on a field that the devices have.",
            LASTS,
        ),
        "ReplicaHeld": (
            W_,
            "A replica runs, or may run, on a cluster of which nothing is known for sure; it counts and is left alone.",
            "Repair that cluster's manifest or its API; then it is placed anew.",
        ),
        "NotServing": (W_, "A deployment's pods aren't ready.", "Look at the pods' events."),
        "ImageMismatch": (
            W_,
            "The image is built for other devices than those it is placed on.",
            "Use the image made for the devices.",
            LASTS,
        ),
    },
)

_IMPORT = _area(
    "Importer",
    {
        "Unclassified": (
            E_,
            "The recipe holds a component that neither ALLOW nor DROP names.",
            "Classify it with a reason.",
        ),
        "ManagedPathMissing": (
            E_,
            "A managed path didn't land in the hydrated values.",
            "Correct the path given to the bundle.",
        ),
        "FloorTooHigh": (
            E_,
            "The recipe needs a newer Kubernetes than the source's default.",
            "Raise the source's default version first.",
        ),
        "BundleInvalid": (
            E_,
            "The recipe or bundle can't be read as one.",
            "Make it again with aicr recipe and aicr bundle.",
        ),
        "PinDiffers": (I_, "The bundle and the shipped pin differ.", "Review the difference before changing the pin."),
    },
    lasts=LASTS,
)

CODES: dict[str, Code] = {**_MANIFESTS, **_GATE, **_JOIN, **_AUDIT, **_HEALTH, **_RUN, **_MODELS, **_IMPORT}
